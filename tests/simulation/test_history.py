"""Catches a history that explains what cannot be, or refuses what may be."""

import pytest

from cookhouse.engine.contract import AdamStep
from cookhouse.engine.simulated import State, fraction
from tests.simulation.history import Asked, BrokenPromiseError, History


def history(order: list[int], arrivals: dict[int, float]) -> History:
    """Of steps that ran in an order, with ids from 1, and came at these times."""
    history = History(State("begin"), gap_seconds=1.0)
    steps = {
        seq_id: Asked(seq_id=seq_id, work=AdamStep(learning_rate=seq_id), arrived_at=at)
        for seq_id, at in arrivals.items()
    }
    state = history.begin
    for seq_id in order:
        state = steps[seq_id].after(state)
        steps[seq_id].number = fraction(state)
    history.asked.extend(steps.values())
    return history


def test_requests_that_came_in_time_ran_in_order() -> None:
    explained = history([1, 2, 3], {1: 0.9, 2: 0.0, 3: 0.5})
    assert list(explained.explain()) == [1, 2, 3]
    with pytest.raises(BrokenPromiseError, match="request 1 ran after 2"):
        history([2, 1, 3], {1: 0.9, 2: 0.0, 3: 0.5}).explain()


def test_one_that_came_late_runs_when_it_comes() -> None:
    assert list(history([2, 1], {1: 1.5, 2: 0.0}).explain()) == [2, 1]


def test_nobody_waits_for_what_one_behind_has_given_up() -> None:
    """3 gave up both 1 and 2, so that 2 need not wait for 1."""
    assert list(history([3, 2, 1], {1: 2.4, 2: 2.0, 3: 0.0}).explain()) == [3, 2, 1]


@pytest.mark.parametrize("order", [[1, 1, 2], [2], [1, 2, 2]])
def test_no_order_explains_work_that_was_doubled_or_lost(order: list[int]) -> None:
    broken = history(order, {1: 0.0, 2: 0.0})
    for asked in broken.asked:
        asked.number = asked.number or 0.5
    with pytest.raises(BrokenPromiseError, match="no order explains"):
        broken.explain()


def test_a_failed_request_changes_nothing() -> None:
    broken = history([1, 3], {1: 0.0, 2: 0.0, 3: 0.0})
    assert list(broken.explain()) == [1, 3]
