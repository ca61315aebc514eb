"""The common part of W&B, Trackio and MLflow: a run of theirs for a run directory, which a resumed run continues."""

import json
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cookhouse.errors import InputError
from cookhouse.telemetry import events
from cookhouse.telemetry.record import Event, MetricsRow, Record, Values

_FOLDER = "sinks"


@dataclass(frozen=True, kw_only=True)
class TrackerRun:
    """A tool's run, as the run directory remembers it."""

    id: str
    name: str
    project: str
    """Experiment, where the tool says so."""
    step: int = -1
    """Of the last row that the tool has for good."""


class Tracker(Protocol):
    """A run of a tool, started."""

    run: TrackerRun
    settling_seconds: float
    """How long the tool holds a row that it was given, which is lost if the process is killed meanwhile."""

    def log(self, step: int, values: Values) -> None:
        """Take the row of a step."""

    def finish(self, status: str) -> None:
        """Send what is left and end: `success`, `interrupted` or `errored`."""


class TrackerSink:
    """Hands metrics rows to a tool's run: of those that a resumed run computes again, the ones that it has not got."""

    def __init__(self, tool: str, folder: Path, tracker: Tracker) -> None:
        self._path = _path(folder, tool)
        self._tracker = tracker
        self._run = tracker.run
        self._unsettled: deque[tuple[float, int]] = deque()
        self._status = "errored"  # unless the run comes to say otherwise
        self._keep(tracker.run)

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow) and record.step > self._run.step:
            self._tracker.log(record.step, record.metrics)
            self._unsettled.append((time.monotonic() + self._tracker.settling_seconds, record.step))
            self._settle(time.monotonic())
        elif isinstance(record, Event) and record.name == events.RUN_END:
            self._status = record.text["status"]

    def close(self) -> None:
        self._tracker.finish(self._status)
        self._settle(math.inf)

    def _settle(self, now: float) -> None:
        """Keep the last step that the tool has for good."""
        settled = -1
        while self._unsettled and self._unsettled[0][0] <= now:
            settled = self._unsettled.popleft()[1]
        if settled > self._run.step:
            self._keep(replace(self._run, step=settled))

    def _keep(self, run: TrackerRun) -> None:
        self._run = run
        self._path.parent.mkdir(exist_ok=True)
        replacement = self._path.with_name(self._path.name + ".new")
        replacement.write_text(json.dumps(asdict(run)) + "\n", encoding="utf-8")
        replacement.replace(self._path)


def read_tracker_run(folder: Path, tool: str) -> TrackerRun | None:
    """The tool's run that this folder's was before it was resumed; None in a new folder.

    Raises:
        InputError: the file that says so cannot be read.
    """
    path = _path(folder, tool)
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return TrackerRun(
            id=str(value["id"]), name=str(value["name"]), project=str(value["project"]), step=int(value["step"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not name a run of {tool} ({error!r}); remove it for a new one") from error


def run_name(folder: Path, settings: Mapping[str, Any]) -> str:
    """Name under which a tool shows the run: `wandb_name`, or the name of the run directory."""
    return settings.get("wandb_name") or folder.resolve().name


def described(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and what the run directory knows besides: `recipe`, `version` and `revision`."""
    path = folder / "config.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {**{name: known[name] for name in ("recipe", "version", "revision") if name in known}, **settings}


def _path(folder: Path, tool: str) -> Path:
    return folder / _FOLDER / f"{tool}.json"
