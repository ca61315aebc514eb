"""Seconds of steps whose answers come at set times."""

import pytest

from cookhouse.training.loop.clock import StepClock, Submission


@pytest.mark.parametrize(
    ("ready_at", "expected"),
    [
        (0.0, 5.0),  # made before the evaluation: it alone was waited for
        (40.0, 25.0),  # made while the evaluation went on: the making counts
        (110.0, 95.0),  # made when the evaluation was over: until then there was nothing to submit
    ],
)
def test_only_what_an_evaluation_alone_took_is_left_out(ready_at: float, expected: float) -> None:
    clock = StepClock()
    assert clock.step_seconds(Submission(ready_at=0.0, held_until=9.0, at=10.0), 20.0) == 10.0
    at = max(100.0, ready_at)
    assert clock.step_seconds(Submission(ready_at=ready_at, held_until=100.0, at=at), at + 5.0) == expected
    assert clock.step_seconds(Submission(ready_at=0.0, held_until=100.0, at=at + 5.0), at + 8.0) == 3.0


def test_a_step_that_was_under_way_during_an_evaluation_has_all_of_its_time() -> None:
    # Catches a wait that began after the step was submitted being taken for one that held it up.
    clock = StepClock()
    clock.step_seconds(Submission(ready_at=0.0, held_until=0.0, at=0.0), 20.0)
    submitted = clock.submit(0.0)
    with clock.held():
        pass
    assert clock.step_seconds(submitted, 60.0) == 40.0
