"""Catches a history that explains what cannot be, or refuses what may be."""

import pytest

from cookhouse.engine.contract import AdamStep
from cookhouse.engine.simulated import State, fraction
from tests.simulation.history import LOADED, Asked, BrokenPromiseError, History, Loaded


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


def test_a_load_that_brings_back_the_first_state_ran_where_the_order_is_right() -> None:
    """2 and 3 ran, then 1, which came late: 1 fits before them as well, and 2 could not have waited so long then."""
    late = history([2, 1, 4], {1: 1.5, 2: 0.0, 4: 1.6})
    steps = {one.seq_id: one for one in late.asked}
    load = Asked(seq_id=3, work=Loaded(late.begin), arrived_at=0.1, number=LOADED)
    late.asked.append(load)
    state = late.begin
    for one in (steps[2], load, steps[1], steps[4]):
        state = one.after(state)
        one.number = one.number if one is load else fraction(state)
    assert list(late.explain()) == [2, 3, 1, 4]


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
