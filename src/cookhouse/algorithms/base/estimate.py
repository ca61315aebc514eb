"""Estimate of a run's time and memory, measured from its steps and corrected as they change."""

import os
from collections.abc import Sequence
from dataclasses import replace

from cookhouse.algorithms.base.process_tree import peak_bytes, runs_module, tree
from cookhouse.algorithms.base.time_left import CHANGE, Pace, Schedule, StepTimes, causes
from cookhouse.telemetry import Telemetry, events, span, step_number
from cookhouse.training import FinishedStep

SERVICE = "cookhouse.server"
"""The module that the process of a run's own service runs; engines are below it."""
_FIRST_STEPS = 4
"""So many steps are taken, and as many are to come, where time and memory are said."""


class RunEstimate:
    """Says, as the event `run.estimate`, how much longer a run will take, and the most memory that its processes and
    those of its own service have held; again, with the cause, when that has changed much.
    """

    def __init__(self, telemetry: Telemetry, schedule: Schedule) -> None:
        self._telemetry = telemetry
        self._times = StepTimes(schedule)
        self._said: Pace | None = None
        self._was_off = False
        self._num_steps = 0
        self._step = 0

    def add(self, finished: FinishedStep) -> dict[str, float]:
        """Take the times of a step; the time left after it as metrics, none before two steps are timed."""
        self._times.add(finished)
        self._num_steps += 1
        self._step = step_number(finished.cursor.step)
        pace = self._times.pace()
        if pace is None:
            return {}
        left = self._times.left(pace, self._step)
        return {"seconds_left_low": left.low, "seconds_left_high": left.high, "seconds_left": left.seconds}

    def say(self) -> None:
        """Say the estimate, if it is due after the step that was added last."""
        pace, num_left = self._times.pace(), self._times.schedule.total_steps - self._step
        if pace is None or self._num_steps < _FIRST_STEPS or num_left < _FIRST_STEPS:
            return
        if self._said is None:
            self._say(pace)
        elif changed := self._changed(self._said, pace):
            self._say(pace, changed)

    def _changed(self, said: Pace, now: Pace) -> list[str]:
        """Causes of a correction that is due; none: it is not. Steps of two paces are timed anew before they count."""
        before, after = (self._times.left(pace, self._step).seconds for pace in (said, now))
        if before / CHANGE < after < before * CHANGE:
            self._was_off = False
            return []
        other = replace(now, step=said.step, tokens=said.tokens)
        if before / CHANGE < self._times.left(other, self._step).seconds < before * CHANGE:
            if not self._was_off:
                self._was_off = True
                self._times.forget_steps()
                return []
            if not self._times.is_settled:
                return []
        self._was_off = False
        return causes(said, now)

    def _say(self, pace: Pace, changed: Sequence[str] = ()) -> None:
        self._said = pace
        left, num_left = self._times.left(pace, self._step), self._times.schedule.total_steps - self._step
        memory = peak_memory()
        metrics = {"step_seconds": pace.step, "seconds_left": left.seconds, **memory}
        said = [f"{num_left:,} steps left at {pace.step:.2f} s each"]
        if pace.evaluation is not None and (num_evaluations := self._times.schedule.evaluations_from(self._step)):
            said.append(f"{_count(num_evaluations)} at {pace.evaluation:.1f} s")
        parts = [f"{' and '.join(said)}: {span(left.low, left.high)}"]
        if left.num_untimed:
            parts.append(f"{_count(left.num_untimed)} not timed yet")
        if "memory_bytes" in memory:
            engine = memory.get("engine_memory_bytes")
            parts.append(
                f"memory so far {_size(memory['memory_bytes'])}"
                + ("" if engine is None else f", and {_size(engine)} in the engine")
            )
        cause = f"corrected, since {', and '.join(changed)}: " if changed else ""
        self._telemetry.event(events.RUN_ESTIMATE, step=self._step, metrics=metrics, text=cause + "; ".join(parts))


def peak_memory() -> dict[str, float]:
    """The most bytes that this process and those that it started have held, those of the run's own service apart;
    nothing where the system does not say.
    """
    whole = tree(os.getpid())
    service = {each for pid in whole if runs_module(pid, SERVICE) for each in tree(pid)}
    own, engine = peak_bytes(pid for pid in whole if pid not in service), peak_bytes(service)
    named = {"memory_bytes": own, "engine_memory_bytes": engine}
    return {name: float(value) for name, value in named.items() if value is not None}


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"


def _count(num_evaluations: int) -> str:
    return "1 evaluation" if num_evaluations == 1 else f"{num_evaluations:,} evaluations"
