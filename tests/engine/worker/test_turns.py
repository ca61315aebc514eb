"""Whose turn it is, with commands and seconds alone."""

from collections.abc import Callable

import numpy as np
import pytest

from cookhouse.engine.contract import (
    Account,
    AdamStep,
    Command,
    Fetch,
    ForwardBackward,
    LoraSpec,
    Pass,
    Read,
    Sample,
    SampleRequest,
    Step,
    TrainingDatum,
)
from cookhouse.engine.worker.turns import TimeShare, Turn, Turns

ALICE, BOB, CAROL = (Account(name, f"of-{name}") for name in ("alice", "bob", "carol"))


def a_pass(command_id: str, model_id: str, account: Account = ALICE, *, tokens: int = 10) -> Pass:
    datum = TrainingDatum(tokens_T=np.zeros(tokens, np.int64), loss_fn_inputs={})
    request = ForwardBackward(model_id=model_id, data_D=[datum], loss_fn="cross_entropy")
    return Pass(command_id=command_id, account=account, model_id=model_id, request=request)


def a_step(command_id: str, model_id: str, account: Account = ALICE) -> Step:
    return Step(command_id=command_id, account=account, model_id=model_id, adam=AdamStep(learning_rate=0.1))


def a_sample(command_id: str, account: Account = ALICE) -> Sample:
    request = SampleRequest(
        request_id=command_id, base_model="b", snapshot_id=None, prompt_T=np.zeros(10, np.int64), seed=0
    )
    return Sample(command_id=command_id, account=account, request=request)


def ids(turn: Turn | None) -> list[str]:
    return [] if turn is None else [command.command_id for command in turn.commands]


def drain(turns: Turns, seconds: float = 0.0) -> list[list[str]]:
    taken = []
    while turn := turns.next(can_sample=False):
        taken.append(ids(turn))
        turns.charge(turn, seconds)
    return taken


def waiting(*commands: Command, max_pass_tokens: int = 100, deterministic: bool = False) -> Turns:
    turns = Turns(max_pass_tokens=max_pass_tokens, deterministic=deterministic)
    for command in commands:
        turns.put(command)
    return turns


def test_a_model_keeps_its_order() -> None:
    """Would catch an optimizer step that overtakes the pass before it."""
    turns = waiting(a_pass("1", "m"), a_step("2", "m"), a_pass("3", "m"), a_step("4", "m"))
    assert drain(turns) == [["1"], ["2"], ["3"], ["4"]]


def test_passes_of_several_models_share_a_turn() -> None:
    """Would catch a turn with two commands of one model, one over the token limit, or a step inside it."""
    commands = [a_pass("a1", "a"), a_pass("a2", "a"), a_step("b1", "b"), a_pass("c1", "c"), a_pass("d1", "d")]
    turns = waiting(*commands, max_pass_tokens=25)
    assert drain(turns) == [["a1", "c1"], ["b1"], ["d1", "a2"]]


def test_a_pass_over_the_limit_runs_alone() -> None:
    """Would catch a large request that never fits."""
    turns = waiting(a_pass("a1", "a", tokens=1000), a_pass("b1", "b"), max_pass_tokens=25)
    assert drain(turns) == [["a1"], ["b1"]]


def test_deterministic_passes_share_nothing() -> None:
    """Would catch a sum that rounds otherwise when someone else trains."""
    turns = waiting(a_pass("a1", "a"), a_pass("b1", "b"), deterministic=True)
    assert drain(turns) == [["a1"], ["b1"]]


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_step_waits_for_one_turn_of_another_tenants_hundred_models(seconds: float) -> None:
    """Would catch turns of models in place of tenants: a step would wait for a hundred others."""
    turns = waiting(*(command for i in range(100) for command in (a_pass(f"p{i}", str(i)), a_step(f"s{i}", str(i)))))
    for _ in range(3):
        turn = turns.next(can_sample=False)
        assert turn is not None
        turns.charge(turn, seconds)
    turns.put(a_pass("mine", "m", BOB))
    turns.put(a_step("step", "m", BOB))
    order = drain(turns, seconds)
    assert "mine" in order[0]
    assert "step" in order[1]


def test_tenants_ride_along_in_turn() -> None:
    """Would catch a shared pass that one tenant's models fill."""
    commands = [a_pass(f"a{i}", f"a{i}") for i in range(10)] + [a_pass(f"b{i}", f"b{i}", BOB) for i in range(2)]
    turns = waiting(*commands, a_pass("c0", "c0", CAROL), max_pass_tokens=50)
    first = ids(turns.next(can_sample=False))
    assert sorted(first) == ["a0", "a1", "b0", "b1", "c0"]


def test_tokens_count_not_requests() -> None:
    """Would catch a tenant with passes ten times as long that gets ten times as much."""
    long = [a_pass(f"a{i}", "a", tokens=10_000) for i in range(20)]
    turns = waiting(*long, *(a_pass(f"b{i}", "b", BOB, tokens=1000) for i in range(200)), max_pass_tokens=1)
    order = [name for turn in drain(turns) for name in turn]
    share = sum(name[0] == "a" for name in order[:88]) / 88  # 10,256 a turn to 1,256
    assert share == pytest.approx(1256 / (1256 + 10_256), abs=0.02)


def test_a_turn_counts_however_small_it_is() -> None:
    """Would catch a tenant whose hundreds of tiny passes hold up another's long one."""
    tiny = [a_pass(f"a{i}", "a", tokens=1) for i in range(200)]
    turns = waiting(*tiny, *(a_pass(f"b{i}", "b", BOB, tokens=1024) for i in range(2)), deterministic=True)
    order = [name for turn in drain(turns) for name in turn]
    assert order.index("b0") <= 1
    assert order.index("b1") <= 1 + 1280 // 257 + 2


def test_what_is_held_holds_its_model_alone() -> None:
    """Would catch a save that waits for the disk, and every other tenant with it."""
    turns = waiting(a_step("held", "a"), a_pass("behind", "a"), a_pass("other", "b", BOB))
    is_held: Callable[[Command], bool] = lambda command: command.command_id == "held"  # noqa: E731
    assert ids(turns.next(can_sample=False, is_held=is_held)) == ["other"]
    assert turns.next(can_sample=False, is_held=is_held) is None
    assert drain(turns) == [["held"], ["behind"]]


def test_what_is_dropped_comes_no_more() -> None:
    """Would catch work of an ended session that runs, and a queue that is left behind."""
    turns = waiting(a_pass("1", "m"), a_step("2", "m"), a_pass("3", "m"), a_sample("s"), a_pass("4", "n"))
    assert turns.drop("2") is not None
    assert turns.drop("2") is None
    assert turns.drop("s") is not None
    assert [command.command_id for command in turns.drop_model("m")] == ["1", "3"]
    assert turns.drop_model("m") == []
    assert drain(turns) == [["4"]]
    turns.put(a_pass("5", "m"))
    assert drain(turns) == [["5"]]


def test_errands_of_a_session_keep_their_order_and_tenants_take_turns() -> None:
    fetch = Fetch(
        command_id="f", account=ALICE, snapshot_id="s", base_model="b", lora=LoraSpec(), url="file:///nowhere"
    )
    read = Read(command_id="r", account=BOB, url="worker://w/x", offset=0, num_bytes=1)
    turns = waiting(fetch, a_sample("a1"), a_sample("a2"), read, a_sample("b1", BOB))
    order = [name for turn in drain(turns) for name in turn]
    assert order == ["f", "r", "a1", "b1", "a2"]


def test_errands_wait_for_a_turn_when_they_take_long() -> None:
    """Would catch a thousand samples, or files read, that hold up who trains."""
    turns = waiting(*(a_sample(f"a{i}") for i in range(10)), a_step("mine", "m", BOB))
    order = []
    while turn := turns.next(can_sample=False):
        order += ids(turn)
        turns.charge(turn, 0.03)
    assert order.index("mine") == 2


def test_samples_and_training_take_turns_by_time() -> None:
    """Would catch a share by turns: a training turn may last as long as fifty sampling steps."""
    turns, spent = waiting(), {"train": 0.0, "sample": 0.0}
    costs = {"train": 0.5, "sample": 0.01}
    for index in range(1000):
        turns.put(a_step(str(index), "m"))
        turn = turns.next(can_sample=True)
        assert turn is not None
        turns.charge(turn, costs[turn.kind])
        spent[turn.kind] += costs[turn.kind]
    assert spent["train"] == pytest.approx(spent["sample"], abs=0.52)


def test_time_spent_alone_is_not_owed() -> None:
    """Would catch sampling that, after an hour of training alone, holds the engine for an hour."""
    share = TimeShare()
    assert share.is_trainings_turn(can_train=True, can_sample=False)
    share.charge(3600.0, training=True)
    assert not share.is_trainings_turn(can_train=True, can_sample=True)
    share.charge(0.01, training=False)
    assert share.is_trainings_turn(can_train=True, can_sample=True)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_random_work_is_all_done_in_order_and_fairly(seed: int, deterministic: bool) -> None:
    """Would catch a command lost or doubled, a model's order broken, and a tenant that gets less than others."""
    rng = np.random.default_rng(seed)
    turns = waiting(max_pass_tokens=200, deterministic=deterministic)
    accounts = [ALICE, BOB, CAROL]
    submitted: dict[str, list[str]] = {}
    done: dict[str, list[str]] = {}
    largest = 256 + 100
    served = dict.fromkeys(range(3), 0)
    always = dict.fromkeys(range(3), True)
    for index in range(600):
        who = int(rng.integers(3))
        model_id = f"{who}-{rng.integers(1 + 10 * (who == 0))}"
        command: Command = a_pass(str(index), model_id, accounts[who], tokens=int(rng.integers(1, 100)))
        if rng.random() < 0.3:
            command = a_step(str(index), model_id, accounts[who])
        submitted.setdefault(model_id, []).append(str(index))
        turns.put(command)
    remaining = {who: sum(len(names) for model, names in submitted.items() if model[0] == str(who)) for who in served}
    while turn := turns.next(can_sample=False):
        for taken in turn.commands:
            assert isinstance(taken, Pass | Step)
            who = int(taken.model_id[0])
            done.setdefault(taken.model_id, []).append(taken.command_id)
            if all(always.values()):
                served[who] += 256 + (taken.request.data_D[0].tokens_T.size if isinstance(taken, Pass) else 0)
            remaining[who] -= 1
            always[who] = remaining[who] > 0
        if deterministic and all(always.values()):  # else who has more models rides along more often
            assert max(served.values()) - min(served.values()) <= 2 * largest
    assert done == submitted
