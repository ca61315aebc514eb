import random

import pytest

from cookhouse.server.sequencer.order import ModelOrder


def order() -> ModelOrder[str]:
    return ModelOrder(gap_seconds=1.0)


def ready(waiting: ModelOrder[str], now: float) -> list[str]:
    """What may run now, in order."""
    taken = []
    while (ready_at := waiting.ready_at()) is not None and ready_at <= now:
        taken.append(waiting.take())
    return taken


def test_requests_run_in_the_order_of_their_ids() -> None:
    """Would catch a sum, or a step, that depends on the order in which requests arrive."""
    names = {1: "pass", 2: "pass", 3: "step", 4: "save", 5: "pass", 6: "step"}
    for seed in range(20):
        waiting, taken = order(), []
        arriving = list(names)
        random.Random(seed).shuffle(arriving)
        for seq_id in arriving:
            waiting.put(f"{names[seq_id]} {seq_id}", seq_id, now=0.0)
            taken += ready(waiting, now=0.5)
        assert taken == [f"{name} {seq_id}" for seq_id, name in names.items()]


@pytest.mark.parametrize("kind", ["pass", "step"])
def test_a_gap_costs_a_bounded_wait(kind: str) -> None:
    """Would catch a step that overtakes its pass, a run wedged by an id that never comes, and one that waits again."""
    waiting = order()
    waiting.put("pass 1", 1, now=0.0)
    assert ready(waiting, now=0.0) == ["pass 1"]
    waiting.put(f"{kind} 3", 3, now=10.0)
    assert waiting.ready_at() == 11.0
    assert ready(waiting, now=10.9) == []
    assert ready(waiting, now=11.0) == [f"{kind} 3"]
    waiting.put("pass 4", 4, now=11.0)
    assert ready(waiting, now=11.0) == ["pass 4"]


def test_one_that_is_late_runs_when_it_comes() -> None:
    """Would catch a late request that is lost, or that holds up those after it."""
    waiting = order()
    waiting.put("step 2", 2, now=0.0)
    assert ready(waiting, now=1.0) == ["step 2"]
    waiting.put("pass 1", 1, now=2.0)
    waiting.put("pass 3", 3, now=2.0)
    assert ready(waiting, now=2.0) == ["pass 1", "pass 3"]


def test_what_was_refused_is_not_waited_for() -> None:
    waiting = order()
    waiting.put("pass 2", 2, now=0.0)
    assert ready(waiting, now=0.0) == []
    waiting.note(1)
    assert ready(waiting, now=0.0) == ["pass 2"]


def test_what_has_no_id_goes_first() -> None:
    """Would catch a pass that runs before its model is made."""
    waiting = order()
    waiting.put("pass 1", 1, now=0.0)
    waiting.put("create", None, now=0.0)
    assert ready(waiting, now=0.0) == ["create", "pass 1"]


def test_draining_gives_all_in_order() -> None:
    waiting = order()
    for seq_id in (5, 3, 4):
        waiting.put(f"pass {seq_id}", seq_id, now=0.0)
    assert waiting.drain() == ["pass 3", "pass 4", "pass 5"]
    assert waiting.ready_at() is None
