"""Estimate of a run's time and memory, measured from its steps and corrected as they change."""

import os
from collections import deque

from cookhouse.algorithms.base.process_tree import peak_bytes, runs_module, tree
from cookhouse.telemetry import Telemetry, events
from cookhouse.training import FinishedStep

SERVICE = "cookhouse.server"
"""The module that the process of a run's own service runs; engines are below it."""
_FIRST_STEPS = 4
"""The first is left out: it holds what is done once, such as compiling and filling caches."""
_RECENT_STEPS = 20
_CHANGE = 1.5
"""A pace that is off by this factor from what was said is said anew."""


class RunEstimate:
    """Says, as the event `run.estimate`, how much longer a run will take at the pace of its last steps, and the most
    memory that its processes and those of its own service have held; again when the pace has changed much.
    """

    def __init__(self, telemetry: Telemetry, total_steps: int) -> None:
        self._telemetry = telemetry
        self._total_steps = total_steps
        self._seconds: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._num_steps = 0
        self._said: float | None = None
        self._was_off = False

    def __call__(self, finished: FinishedStep) -> None:
        self._num_steps += 1
        if self._num_steps > 1:
            self._seconds.append(finished.seconds)
        num_left = self._total_steps - finished.cursor.step - 1
        if self._num_steps < _FIRST_STEPS or num_left < _FIRST_STEPS:
            return
        pace = sum(self._seconds) / len(self._seconds)
        if self._said is None:
            self._say(pace, num_left, finished.cursor.step + 1)
        elif len(self._seconds) == _RECENT_STEPS:
            is_off = not self._said / _CHANGE < pace < self._said * _CHANGE
            if is_off and self._was_off:
                self._say(pace, num_left, finished.cursor.step + 1)
            elif is_off:
                self._seconds.clear()  # of the old pace and the new: the next ones tell
            self._was_off = is_off and self._said != pace

    def _say(self, pace: float, num_left: int, step: int) -> None:
        memory = peak_memory()
        is_corrected, self._said = self._said is not None, pace
        metrics = {"step_seconds": pace, "seconds_left": pace * num_left, **memory}
        parts = [f"{num_left:,} steps left at {pace:.2f} s each: about {_duration(pace * num_left)}"]
        if "memory_bytes" in memory:
            engine = memory.get("engine_memory_bytes")
            parts.append(
                f"memory so far {_size(memory['memory_bytes'])}"
                + ("" if engine is None else f", and {_size(engine)} in the engine")
            )
        text = ("corrected: " if is_corrected else "") + "; ".join(parts)
        self._telemetry.event(events.RUN_ESTIMATE, step=step, metrics=metrics, text=text)


def peak_memory() -> dict[str, float]:
    """The most bytes that this process and those that it started have held, those of the run's own service apart;
    nothing where the system does not say.
    """
    whole = tree(os.getpid())
    service = {each for pid in whole if runs_module(pid, SERVICE) for each in tree(pid)}
    own, engine = peak_bytes(pid for pid in whole if pid not in service), peak_bytes(service)
    named = {"memory_bytes": own, "engine_memory_bytes": engine}
    return {name: float(value) for name, value in named.items() if value is not None}


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
