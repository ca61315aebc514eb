from collections.abc import Sequence

import pytest
from cookhouse.server.sequencer.turns import Job, TimeShare, TrainingQueues

from cookhouse.server.refusals import BusyError


def queues(**limits: float) -> TrainingQueues[Job]:
    defaults = {"gap_seconds": 1.0, "max_pass_tokens": 100, "max_queued_requests": 10, "max_queued_bytes": 1000}
    return TrainingQueues(**{**defaults, **limits})  # type: ignore[arg-type]


def a_pass(model_id: str, seq_id: int, *, at: float = 0.0, tokens: int = 10, num_bytes: int = 1) -> Job:
    return Job(model_id=model_id, seq_id=seq_id, arrived_at=at, num_tokens=tokens, num_bytes=num_bytes, is_pass=True)


def a_step(model_id: str, seq_id: int, *, at: float = 0.0) -> Job:
    return Job(model_id=model_id, seq_id=seq_id, arrived_at=at)


def ids(jobs: Sequence[Job]) -> list[tuple[str, int]]:
    return [(job.model_id, job.seq_id) for job in jobs]


def drain(waiting: TrainingQueues[Job], now: float = 0.0) -> list[list[tuple[str, int]]]:
    turns = []
    while jobs := waiting.take(now):
        turns.append(ids(jobs))
    return turns


def test_a_model_keeps_its_order() -> None:
    """Would catch an optimizer step that overtakes the pass before it."""
    waiting = queues()
    for job in (a_pass("a", 1), a_step("a", 2), a_pass("a", 3), a_step("a", 4)):
        waiting.put(job)
    assert drain(waiting) == [[("a", 1)], [("a", 2)], [("a", 3)], [("a", 4)]]


def test_neighboring_passes_run_in_the_order_of_their_ids() -> None:
    """Would catch gradients summed in the order of arrival, which differs from run to run."""
    waiting = queues()
    for seq_id in (2, 4, 3):
        waiting.put(a_pass("a", seq_id))
        assert waiting.take(0.0) == []  # the first chunk is sent last
    waiting.put(a_pass("a", 1))
    waiting.put(a_step("a", 5))
    waiting.put(a_pass("a", 6))
    assert drain(waiting) == [[("a", seq_id)] for seq_id in range(1, 7)]


def test_a_gap_costs_a_bounded_wait() -> None:
    """Would catch a run that is wedged by an id which never comes, or that waits again at every later request."""
    waiting = queues()
    waiting.put(a_pass("a", 1))
    assert ids(waiting.take(0.0)) == [("a", 1)]
    waiting.put(a_pass("a", 3, at=10.0))
    assert waiting.wait_seconds(10.25) == pytest.approx(0.75)
    assert waiting.take(10.25) == []
    assert ids(waiting.take(11.0)) == [("a", 3)]
    waiting.put(a_pass("a", 4, at=11.0))
    assert ids(waiting.take(11.0)) == [("a", 4)]


def test_a_refused_request_leaves_no_gap() -> None:
    """Would catch a pass waiting for one that was answered without the engine."""
    waiting = queues()
    waiting.note("a", 1)
    waiting.put(a_pass("a", 2))
    assert ids(waiting.take(0.0)) == [("a", 2)]


def test_models_take_turns() -> None:
    """Would catch one tenant's long queue holding up the others."""
    waiting = queues()
    for seq_id in (1, 2, 3):
        waiting.put(a_step("a", seq_id))
    waiting.put(a_step("b", 1))
    assert drain(waiting) == [[("a", 1)], [("b", 1)], [("a", 2)], [("a", 3)]]


def test_passes_of_several_models_share_a_turn() -> None:
    """Would catch a turn with two jobs of one model, one over the token limit, or a step inside it."""
    waiting = queues(max_pass_tokens=25)
    for job in (a_pass("a", 1), a_pass("a", 2), a_step("b", 1), a_pass("c", 1), a_pass("d", 1)):
        waiting.put(job)
    assert drain(waiting) == [[("a", 1), ("c", 1)], [("b", 1)], [("d", 1), ("a", 2)]]


def test_a_pass_over_the_limit_runs_alone() -> None:
    """Would catch a large request that never fits."""
    waiting = queues(max_pass_tokens=25)
    waiting.put(a_pass("a", 1, tokens=1000))
    waiting.put(a_pass("b", 1))
    assert drain(waiting) == [[("a", 1)], [("b", 1)]]


def test_full_queues_refuse() -> None:
    """Would catch memory that grows with whatever clients send."""
    waiting = queues(max_queued_requests=2)
    waiting.put(a_step("a", 1))
    waiting.put(a_step("a", 2))
    with pytest.raises(BusyError):
        waiting.put(a_step("a", 3))
    waiting.put(a_step("b", 1))
    heavy = queues(max_queued_bytes=100)
    heavy.put(a_pass("a", 1, num_bytes=500))  # alone it may pass, else it never could
    with pytest.raises(BusyError):
        heavy.put(a_pass("b", 1, num_bytes=1))
    heavy.take(0.0)
    heavy.put(a_pass("b", 1, num_bytes=1))


def test_a_dropped_model_gives_its_jobs_back() -> None:
    """Would catch futures of an ended session that nobody finishes, and bytes that stay counted."""
    waiting = queues(max_queued_bytes=100)
    waiting.put(a_pass("a", 1, num_bytes=90))
    assert ids(waiting.drop("a")) == [("a", 1)]
    assert waiting.drop("a") == ()
    assert waiting.wait_seconds(0.0) is None
    waiting.put(a_pass("b", 1, num_bytes=90))


def test_time_is_shared_in_halves() -> None:
    """Would catch a share by turns: a training turn may last as long as fifty sampling steps."""
    share, spent = TimeShare(), {True: 0.0, False: 0.0}
    costs = {True: 0.5, False: 0.01}
    for _ in range(1000):
        turn = share.is_trainings_turn(can_train=True, can_sample=True)
        share.charge(costs[turn], training=turn)
        spent[turn] += costs[turn]
    assert spent[True] == pytest.approx(spent[False], abs=0.52)


def test_time_spent_alone_is_not_owed() -> None:
    """Would catch sampling that, after an hour of training alone, holds the engine for an hour."""
    share = TimeShare()
    assert share.is_trainings_turn(can_train=True, can_sample=False)
    share.charge(3600.0, training=True)
    assert not share.is_trainings_turn(can_train=True, can_sample=True)
    share.charge(0.01, training=False)
    assert share.is_trainings_turn(can_train=True, can_sample=True)
