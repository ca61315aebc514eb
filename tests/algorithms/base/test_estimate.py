"""The estimate of a run: from its first steps, and corrected."""

from tests.recipes.events import Events

from cookhouse.algorithms.base.estimate import RunEstimate
from cookhouse.telemetry import Event, Telemetry
from cookhouse.training import FinishedStep
from cookhouse.weights.checkpoints import Cursor


def said(seconds: list[float], total_steps: int) -> list[Event]:
    """What is said of a run whose steps take so long."""
    events: list[Event] = []
    estimate = RunEstimate(Telemetry([Events(events.append)]), total_steps)
    for step, each in enumerate(seconds):
        estimate(FinishedStep(cursor=Cursor(step=step), metrics={}, seconds=each))
    return events


def test_the_first_step_is_no_measure_of_the_others() -> None:
    # Catches an estimate of hours after a step in which kernels were compiled.
    (only,) = said([90.0, 2.0, 2.0, 2.0, 2.0], 100)
    assert (only.name, only.step) == ("run.estimate", 4)
    assert (only.metrics["step_seconds"], only.metrics["seconds_left"]) == (2.0, 192.0)
    assert only.text["text"].startswith("96 steps left at 2.00 s each: about 3 min")
    assert only.metrics.get("memory_bytes", 1.0) > 0


def test_a_pace_that_changes_corrects_it_once() -> None:
    events = said([1.0] * 10 + [4.0] * 40, 1000)
    assert len(events) == 2
    assert events[1].text["text"].startswith("corrected: ")
    assert said([1.0, 1.2, 0.9, 1.1] * 20, 1000)[1:] == []


def test_a_run_that_is_nearly_over_says_nothing() -> None:
    assert said([1.0] * 6, 7) == []
