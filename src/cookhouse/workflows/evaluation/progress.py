"""How far an evaluation is, told as it goes on."""

import time

from cookhouse.telemetry import Telemetry, events


class Progress:
    """Tells of each item of a benchmark that is done; `done` were before."""

    def __init__(self, telemetry: Telemetry, name: str, total: int, done: int = 0) -> None:
        self._telemetry = telemetry
        self._name, self._total = name, total
        self._before = self._done = done
        self._start = time.monotonic()

    def __call__(self) -> None:
        self._done += 1
        pace = (time.monotonic() - self._start) / (self._done - self._before)
        metrics = {"done": self._done, "total": self._total, "seconds_left": pace * (self._total - self._done)}
        self._telemetry.event(events.EVAL_PROGRESS, metrics=metrics, benchmark=self._name)
