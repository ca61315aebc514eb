"""The estimate of a run: from its first steps, and corrected."""

from collections.abc import Sequence

from tests.recipes.events import Events

from cookhouse.algorithms.base.estimate import RunEstimate
from cookhouse.algorithms.base.time_left import Schedule
from cookhouse.telemetry import Event, Telemetry
from cookhouse.training import Cadence, FinishedStep
from cookhouse.weights.checkpoints import Cursor


def said(
    seconds: Sequence[float], total_steps: int, *, tokens: Sequence[float] = (), eval_every: int = 0, held: float = 0.0
) -> list[Event]:
    """What is said of a run whose steps take so long and have so many tokens, and whose evaluations hold them up."""
    events: list[Event] = []
    evaluations = [Cadence(every=eval_every)] if eval_every else []
    estimate = RunEstimate(Telemetry([Events(events.append)]), Schedule(total_steps, evaluations))
    for step, each in enumerate(seconds):
        is_due = any(cadence.is_due(step) for cadence in evaluations)
        metrics = {"train/num_tokens": tokens[step] if tokens else 100.0, **({"test/nll": 1.0} if is_due else {})}
        estimate.add(
            FinishedStep(cursor=Cursor(step=step), metrics=metrics, seconds=each, held_seconds=held if is_due else 0.0)
        )
        estimate.say()
    return events


def test_the_first_step_is_no_measure_of_the_others() -> None:
    # Catches an estimate of hours after a step in which kernels were compiled.
    (only,) = said([90.0, 2.0, 2.0, 2.0, 2.0], 100)
    assert (only.name, only.step) == ("run.estimate", 4)
    assert (only.metrics["step_seconds"], only.metrics["seconds_left"]) == (2.0, 192.0)
    assert only.text["text"].startswith("96 steps left at 2.00 s each: about 3 min")
    assert only.metrics.get("memory_bytes", 1.0) > 0


def test_a_pace_that_changes_corrects_it_once_with_the_cause() -> None:
    events = said([1.0] * 10 + [4.0] * 40, 1000, tokens=[100.0] * 10 + [350.0] * 40)
    assert len(events) == 2
    cause = "corrected, since a step takes 4.00 s and took 1.00 s, with 350 tokens in place of 100: "
    assert events[1].text["text"].startswith(cause)
    assert said([1.0, 1.2, 0.9, 1.1] * 20, 1000)[1:] == []


def test_an_evaluation_that_takes_long_corrects_it_as_soon_as_it_is_timed() -> None:
    # Catches a run of which only its steps are counted.
    first, second = said([1.0] * 30, 100, eval_every=10, held=40.0)
    assert "; 10 evaluations not timed yet" in first.text["text"]
    assert second.step == 13
    cause = "corrected, since an evaluation takes 40.0 s, which was not timed: 87 steps left at 1.00 s each and "
    assert second.text["text"].startswith(f"{cause}9 evaluations at 40.0 s: about 7 min")


def test_a_run_that_is_nearly_over_says_nothing() -> None:
    assert said([1.0] * 6, 7) == []
