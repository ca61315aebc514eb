"""Catches promises that add up to more memory than there is, and refusals that do not say why or what to do."""

import random

import pytest
import torch

from cookhouse.engine import budget as budget_module
from cookhouse.engine.budget import Budget
from cookhouse.errors import InputError

CPU = torch.device("cpu")


def _budget(free: int) -> Budget:
    """Of a machine where so much is free, beside an eighth of it for passes."""
    return Budget(CPU, lambda: free)


def test_an_eighth_of_little_memory_is_left_to_passes() -> None:
    assert _budget(800).promised_bytes() == 100
    assert _budget(2**40).promised_bytes() == 2**29
    assert _budget(800).pass_bytes(1) == 800


def test_what_does_not_fit_is_refused_with_figures_and_changes_nothing() -> None:
    budget = _budget(2**30)
    budget.promise("snapshot", "model a", 2**29)
    budget.promise("cache", "sampler b", 2**27)
    message = (
        r"^a thing takes 0\.50 GiB and 0\.25 GiB of memory are free beside what is promised \(key-value caches 0\.12 "
        r"GiB, snapshots 0\.50 GiB, passes 0\.12 GiB\); do without$"
    )
    with pytest.raises(InputError, match=message):
        budget.check(2**29, "a thing", "do without")
    assert budget.promised_bytes() == 2**27 + 2**29 + 2**27
    budget.check(2**28, "a thing", "do without")
    budget.check(2**29, "a snapshot", "do without", but_for={"snapshot"})  # they were promised to it
    budget.release("model a")
    budget.release("model a")
    budget.check(2**29, "a thing", "do without")


def test_a_promise_shrinks_as_it_is_taken() -> None:
    left = 500
    budget = _budget(1000)
    budget.watch("cache", "sampler", lambda: left)
    assert budget.spare_bytes() == 375
    left = 100
    assert budget.spare_bytes() == 775


def test_the_heap_gives_back_what_it_keeps_only_where_too_little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch memory that is kept for passes and refused to all else, and a heap emptied for every small thing."""
    free = 800

    def give_back() -> None:
        nonlocal free
        free = 1600

    monkeypatch.setattr(budget_module, "give_back", give_back)
    budget = Budget(CPU, lambda: free)
    assert budget.spare_bytes(700) == 700
    assert budget.spare_bytes(701) == 1500


@pytest.mark.parametrize("seed", range(5))
def test_promises_never_exceed_what_there_is(seed: int) -> None:
    """Whatever comes and goes: a machine of some bytes, whose every promise is kept in the end."""
    rng = random.Random(seed)
    total, taken = 10_000, 0
    budget = Budget(CPU, lambda: total - taken)
    held: dict[str, tuple[int, bool]] = {}
    refused = 0
    for number in range(500):
        key, num_bytes = str(number), rng.randrange(1, 2_000)
        if held and rng.random() < 0.45:
            old = rng.choice(sorted(held))
            size, is_taken = held.pop(old)
            taken -= size * is_taken
            budget.release(old)
            continue
        try:
            budget.check(num_bytes, "a thing", "wait")
        except InputError:
            refused += 1
            continue
        is_taken = rng.random() < 0.5
        if is_taken:
            taken += num_bytes
        else:
            budget.promise("snapshot", key, num_bytes)
        held[key] = num_bytes, is_taken
        assert sum(size for size, _ in held.values()) <= total
    assert refused > 20
