"""The time that a run has left, on the recorded step times of real runs."""

from collections.abc import Sequence

import pytest

from cookhouse.algorithms.base.time_left import Pace, Schedule, StepTimes, TimeLeft, causes
from cookhouse.training import Cadence, FinishedStep
from cookhouse.weights.checkpoints import Cursor

# time/step_seconds of the three runs of the recipe rlhf on two busy cores; each measured every four steps.
WARM_UP = [1.06, 1.25, 0.55, 0.51, 0.66, 0.99, 0.34, 0.27, 1.28, 0.33, 0.46, 0.42]
COMPARISONS = [
    *(3.2, 5.87, 3.62, 3.39, 5.2, 7.5, 4.2, 3.28, 6.04, 8.14, 3.37, 3.27),
    *(4.21, 7.75, 3.09, 2.97, 4.66, 8.1, 3.29, 3.64, 4.39, 7.48, 3.59, 3.24),
]
ROLLOUTS = [6.26, 12.87, 4.26, 0.51, 2.41, 10.85, 2.93, 2.91, 1.89, 2.51, 3.82, 3.44, 2.2, 4.22, 4.26, 2.77]
EVERY_FOUR = Cadence(every=4, at_start=True)


def add(times: StepTimes, seconds: Sequence[float], *, evaluated: Cadence | None = None, held: float = 0.0) -> None:
    """Steps that took so long; `held`: the seconds for which each evaluation held them up besides."""
    for step, each in enumerate(seconds):
        is_due = evaluated is not None and evaluated.is_due(step)
        metrics = {"train/num_tokens": 100.0, **({"test/nll": 1.0} if is_due else {})}
        times.add(
            FinishedStep(cursor=Cursor(step=step), metrics=metrics, seconds=each, held_seconds=held if is_due else 0.0)
        )


def estimates(seconds: Sequence[float]) -> dict[int, tuple[TimeLeft, float]]:
    """After each step of a recorded run its estimate, and the seconds that the run really had left, the last
    evaluation, which no step has, as estimated.
    """
    found = {}
    for count in range(1, len(seconds) + 1):
        times = StepTimes(Schedule(len(seconds), [EVERY_FOUR]))
        add(times, seconds[:count], evaluated=EVERY_FOUR)
        if (pace := times.pace()) is not None:
            found[count] = times.left(pace, count), sum(seconds[count:]) + (pace.evaluation or 0.0)
    return found


@pytest.mark.parametrize("seconds", [WARM_UP, COMPARISONS, ROLLOUTS])
def test_a_recorded_run_takes_as_long_as_it_was_told(seconds: Sequence[float]) -> None:
    """Catches an estimate that takes the steps beside evaluations for all, or that leaves evaluations out."""
    told = estimates(seconds)
    assert min(told) <= 5
    halves = [(left.seconds, real) for step, (left, real) in told.items() if len(seconds) // 2 <= step < len(seconds)]
    assert all(real / 2 < seconds_left < real * 2 for seconds_left, real in halves)
    assert all(left.low <= left.seconds <= left.high for left, _ in told.values())


def test_it_is_a_range_until_ten_steps_are_timed() -> None:
    # Catches a figure to the second after two steps, and a range that never ends.
    told = estimates(COMPARISONS)
    assert {step: left.low < left.high for step, (left, _) in told.items()} == {
        step: step <= 10 for step in range(4, 25)
    } | {24: False}


def test_evaluations_and_checkpoints_to_come_are_counted_by_what_they_took() -> None:
    every_ten = Cadence(every=10, at_start=True)
    times = StepTimes(Schedule(40, [every_ten], Cadence(every=5)))
    seconds = [1.0 if step % 10 != 5 else 4.0 for step in range(16)]
    add(times, seconds, evaluated=every_ten, held=30.0)
    pace = times.pace()
    assert pace is not None
    assert (pace.step, pace.evaluation, pace.checkpoint) == (1.0, 30.0, 3.0)
    # 24 steps, evaluations at 20, 30 and the end, checkpoints at 20, 25, 30, 35 and the end.
    assert times.left(pace, 16).seconds == 24 + 3 * 30 + 5 * 3


def test_evaluations_that_no_one_has_timed_are_counted_apart() -> None:
    times = StepTimes(Schedule(40, [Cadence(every=10)]))
    add(times, [1.0] * 5)
    pace = times.pace()
    assert pace is not None
    assert times.left(pace, 5).num_untimed == 4
    assert times.left(pace, 5).seconds == 35.0


def test_evaluations_and_checkpoints_at_every_step_leave_steps_to_time() -> None:
    # Catches a run that never says how long it takes, since no step is without either.
    every = Cadence(every=1, at_start=True)
    times = StepTimes(Schedule(9, [every], every))
    add(times, [1.0] * 5, evaluated=every, held=2.0)
    pace = times.pace()
    assert pace is not None
    assert times.left(pace, 5).seconds == pytest.approx(4 * 1.0 + 5 * 2.0)


def pace(*, step: float = 1.0, evaluation: float | None = 2.0, checkpoint: float = 0.0, tokens: float = 100.0) -> Pace:
    return Pace(step=step, step_low=step, step_high=step, evaluation=evaluation, checkpoint=checkpoint, tokens=tokens)


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (pace(step=2.0, tokens=230.0), "a step takes 2.00 s and took 1.00 s, with 230 tokens in place of 100"),
        (pace(step=2.0), "a step takes 2.00 s and took 1.00 s"),
        (pace(step=2.0, tokens=30.0), "a step takes 2.00 s and took 1.00 s"),
        (pace(evaluation=40.0), "an evaluation takes 40.0 s and took 2.0 s"),
        (pace(checkpoint=9.0), "a checkpoint takes 9.0 s"),
    ],
)
def test_a_correction_names_only_what_was_measured(now: Pace, cause: str) -> None:
    # Catches a cause that is guessed, such as longer answers where the steps have as many tokens.
    assert causes(pace(), now) == [cause]
    assert causes(pace(evaluation=None), pace(evaluation=40.0)) == ["an evaluation takes 40.0 s, which was not timed"]
