"""Timing of the steps of a loop, evaluations left out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Times of a step's submission, and of what came before it; all of `time.perf_counter`."""

    ready_at: float
    """When there was something to submit."""
    held_until: float
    """The end of the last wait for an evaluation before."""
    at: float


class StepClock:
    """Measures steps from answer to answer."""

    def __init__(self) -> None:
        self._answered_at: float | None = None  # when the step before was
        self._held_until = 0.0
        self.held_seconds = 0.0
        """What was left out of the last step that was measured."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """The body waits for an evaluation."""
        yield
        self._held_until = time.perf_counter()

    def submit(self, ready_at: float) -> Submission:
        """A step is submitted now."""
        return Submission(ready_at=ready_at, held_until=self._held_until, at=time.perf_counter())

    def step_seconds(self, submitted: Submission, answered_at: float) -> float:
        """Of a step: since the last answer to the one before, without the time in which nothing but an evaluation kept
        it from being submitted. Of the first: since it was submitted. Called once for each step, in order.
        """
        before, self._answered_at = self._answered_at, answered_at
        if before is None:
            return answered_at - submitted.at
        self.held_seconds = max(0.0, submitted.held_until - max(before, submitted.ready_at))
        return answered_at - before - self.held_seconds
