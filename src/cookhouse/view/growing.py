"""The metrics of the runs that are looked at: each file is read once, whoever asks, and then what is new in it."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cookhouse.runs.names import METRICS_FILE
from cookhouse.runs.reading.metrics import GrowingMetrics

_MAX_RUNS: Final = 8
"""Whose metrics are held; those asked for last stay."""


class MetricsOfRuns:
    """Metrics by run directory. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[Path, tuple[threading.Lock, GrowingMetrics]] = OrderedDict()

    @contextmanager
    def of(self, folder: Path) -> Iterator[GrowingMetrics]:
        """Those of a run, for the body alone."""
        with self._lock:
            if folder not in self._held:
                self._held[folder] = threading.Lock(), GrowingMetrics(folder / METRICS_FILE)
            self._held.move_to_end(folder)
            while len(self._held) > _MAX_RUNS:
                self._held.popitem(last=False)
            lock, metrics = self._held[folder]
        with lock:
            yield metrics
