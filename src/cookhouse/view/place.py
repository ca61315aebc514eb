"""The runs that a page is about: those of a folder, found by name, and in a line each.

What was read of a run is kept for as long as its files stay as they are, so that hundreds of runs are looked at by a
few calls to the file system each.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from cookhouse.errors import UnknownNameError
from cookhouse.runs.listing.find import MAX_DEPTH, FoundRun, find_runs, is_run, read_run
from cookhouse.runs.listing.overview import RunOverview, overview_of, overviews_of
from cookhouse.runs.lock import is_held
from cookhouse.runs.names import CONFIG_FILE, METRICS_FILE, RESULT_FILE, RUN_FILE, RUNS_FOLDER
from cookhouse.runs.reading.metrics import GrowingMetrics
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE

_MAX_RUNS: Final = 8
"""Whose metrics are held; those asked for last stay."""


class MetricsOfRuns:
    """Metrics by run directory. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[Path, tuple[threading.Lock, GrowingMetrics]] = OrderedDict()

    @contextmanager
    def of(self, folder: Path) -> Iterator[GrowingMetrics]:
        """Metrics of a run, for the body alone."""
        with self._lock:
            if folder not in self._held:
                self._held[folder] = threading.Lock(), GrowingMetrics(folder / METRICS_FILE)
            self._held.move_to_end(folder)
            while len(self._held) > _MAX_RUNS:
                self._held.popitem(last=False)
            lock, metrics = self._held[folder]
        with lock:
            yield metrics


_FILES: Final = (CONFIG_FILE, RUN_FILE, METRICS_FILE, RESULT_FILE, CHECKPOINTS_FILE)
"""What a line of the list is read from."""
Signature: TypeAlias = tuple[int, int, int]
"""Inode, size and time of a file: what changes when it does."""


@dataclass
class _Kept:
    """Reading of a run when its files were as the signatures say."""

    signatures: Sequence[Signature | None]
    was_held: bool
    run: FoundRun
    overview: RunOverview | None = None


class Place:
    """A folder of runs. Its methods read files: call them where blocking is allowed."""

    def __init__(self, folder: Path, only: str | None = None) -> None:
        """`only`: the name of the one run in the folder that it is about, with those that this consists of."""
        self.folder = folder
        self.only = only
        self.metrics = MetricsOfRuns()
        self._kept: dict[Path, _Kept] = {}
        self._found: dict[str, FoundRun] = {}
        self._lock = threading.Lock()

    def runs(self) -> Sequence[FoundRun]:
        """The oldest first, each before its children."""
        with self._lock:
            runs = find_runs(self.folder, self._read, self.only)
            self._found = {run.name: run for run in runs}
            paths = {run.path for run in runs}
            self._kept = {path: kept for path, kept in self._kept.items() if path in paths}
            return runs

    def run(self, name: str) -> FoundRun:
        """The run of exactly this name. A name is compared with those found, and never made a path.

        Raises:
            UnknownNameError: there is none.
        """
        found = self._found.get(name)
        if found is not None and (run := self._read(found.path, name, found.parent)) is not None:
            return replace(run, number=found.number)
        runs = {run.name: run for run in self.runs()}
        if name not in runs:
            raise UnknownNameError(
                "run", name, runs, way_out="it may have been deleted; the list has all that are there"
            )
        return runs[name]

    def overviews(self) -> Sequence[RunOverview]:
        """A line for each run: the newest first, each before its children."""
        return overviews_of(self.runs(), self.overview)

    def overview(self, run: FoundRun) -> RunOverview:
        """Overview of a run by itself."""
        kept = self._kept.get(run.path)
        if kept is None or kept.run.history is not run.history:
            return overview_of(run)
        if kept.overview is None:
            kept.overview = overview_of(run)
        return replace(kept.overview, number=run.number)

    def _read(self, path: Path, name: str, parent: str | None) -> FoundRun | None:
        if not is_run(path) or not _is_text(name):
            return None
        signatures = [signature_of(path / file) for file in _FILES]
        kept = self._kept.get(path)
        # The lock shows whether a run without an end goes on, and leaves no trace in the files when it is let go.
        if kept is not None and kept.signatures == signatures and kept.was_held == _is_held(kept.run):
            return kept.run
        if not all((path / file).is_file() for file, signature in zip(_FILES, signatures, strict=True) if signature):
            return None  # a pipe, which whoever reads it waits at, is no run's
        run = read_run(path, name, parent)
        if run is not None:
            self._kept[path] = _Kept(signatures=signatures, was_held=_is_held(run), run=run)
        return run


def place_of(run: Path, under: Path = RUNS_FOLDER) -> tuple[Place, str]:
    """The place to show a run in, and its name there: a folder that it lies in, or else it alone. It need not be there
    yet.
    """
    folder, whole = under.resolve(), run.resolve()
    if whole.is_relative_to(folder) and len(whole.relative_to(folder).parts) in range(1, MAX_DEPTH + 1):
        return Place(under), str(whole.relative_to(folder))
    return Place(whole.parent, only=whole.name), whole.name


def signature_of(path: Path) -> Signature | None:
    """Of a file or a folder; None if there is none."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _is_text(name: str) -> bool:
    """True if an address can have a name: some folders have bytes in theirs that are no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_held(run: FoundRun) -> bool:
    is_open = run.history.is_running or run.history.launches[-1].ended_at is None
    return is_open and is_held(run.path)
