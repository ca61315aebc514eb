"""run.json: the launches of a run, from its start or a resume to an end each: when, where, with what, and how it ended.

state         last launch        lock of the folder
running       has not ended       held
interrupted   has not ended       free: its process is gone
as it says    has ended           either
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cookhouse.errors import InputError
from cookhouse.runs.history.machine import Machine
from cookhouse.runs.lock import is_held
from cookhouse.runs.names import LOG_FILE, METRICS_FILE, RUN_FILE, SAMPLES_FOLDER, TRACE_FILE
from cookhouse.weights.checkpoints import CHECKPOINTS_FILE

if TYPE_CHECKING:
    from cookhouse.telemetry import Metric

MAX_FILE_BYTES = 1 << 20
"""Of a file of JSON that a run writes once; a larger one is not read."""
_MAX_ERROR_CHARACTERS = 500
_MAX_WARNING_CHARACTERS = 1000
_GONE = "its process ended without a word: killed, or the machine went down"
_ACTIVE = (METRICS_FILE, CHECKPOINTS_FILE, LOG_FILE, TRACE_FILE, SAMPLES_FOLDER, RUN_FILE)


class RunStatus(StrEnum):
    """Status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A stretch of a run in one process. What is not known of it is None."""

    started_at: datetime
    ended_at: datetime | None = None
    status: RunStatus | None = None
    error: str | None = None
    """Why it failed, in one line."""
    recipe: str | None = None
    """As a person named it, to run it again from `folder`."""
    adapters: str | None = None
    """What stood behind `--adapters`."""
    folder: str | None = None
    """That it was started in: relative paths among the settings begin there."""
    process_id: int | None = None
    total_steps: int | None = None
    version: str | None = None
    revision: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions by name, Python's among them."""
    machine: Machine | None = None
    service: str | None = None
    """Which training service it used, and what that computes on, in words."""
    registered_model: str | None = None
    """`name@version` that its weights were registered as."""
    usage: Mapping[str, float] | None = None
    """What the service counted for it: tokens by kind, and seconds of its engine."""
    warnings: Sequence[str] = ()
    """What it warned of."""
    stopped: str | None = None
    """Why it ended before its last step."""
    notes: Sequence[str] = ()
    """What it said of its data and settings before it trained."""
    metrics: "Sequence[Metric]" = ()
    """What was declared of the metrics that it wrote, besides those of cookhouse."""
    headline: str | None = None
    """Metric that the setting `headline` names."""

    @property
    def seconds(self) -> float:
        """From start to end; 0 while there is none."""
        return 0.0 if self.ended_at is None else max(0.0, (self.ended_at - self.started_at).total_seconds())

    def ended(
        self, status: RunStatus, error: BaseException | str | None = None, at: datetime | None = None
    ) -> "Launch":
        """The launch, over; at a time, default: now."""
        said = None if error is None else _one_line(f"{error}", _MAX_ERROR_CHARACTERS)
        if isinstance(error, BaseException) and not said:
            said = type(error).__name__
        return replace(
            self,
            ended_at=max(self.started_at, at or datetime.now(UTC)),
            status=status,
            error=said,
        )

    def warned(self, text: str) -> "Launch":
        """The launch, with one more warning."""
        return replace(self, warnings=[*self.warnings, _one_line(text, _MAX_WARNING_CHARACTERS)])

    def noted(self, text: str) -> "Launch":
        """The launch, with one more note."""
        return replace(self, notes=[*self.notes, _one_line(text, _MAX_WARNING_CHARACTERS)])


@dataclass(frozen=True, kw_only=True)
class History:
    """The launches of a run, the first one first; there is one at least."""

    launches: Sequence[Launch]
    is_running: bool

    @classmethod
    def unknown(cls, at: datetime) -> "History":
        """Of a run whose run.json cannot be read."""
        return cls(launches=[Launch(started_at=at, ended_at=at)], is_running=False)

    @property
    def status(self) -> RunStatus:
        last = self.launches[-1]
        if self.is_running:
            return RunStatus.RUNNING
        return last.status or RunStatus.INTERRUPTED

    @property
    def error(self) -> str | None:
        """Why it failed, or ended where it did."""
        return self.launches[-1].error

    @property
    def started_at(self) -> datetime:
        return self.launches[0].started_at

    @property
    def last_at(self) -> datetime:
        """The end, or the last sign of life."""
        return self.launches[-1].ended_at or datetime.now(UTC)

    @property
    def usage(self) -> Mapping[str, float] | None:
        """Of the launches that the service reported; of one whose process was killed it reports nothing."""
        total: Counter[str] = Counter()
        for launch in self.launches:
            total.update(launch.usage or {})
        return dict(total) or None

    @property
    def num_unreported(self) -> int:
        """Launches before the last that reported no usage, as those whose process was killed."""
        return sum(launch.usage is None for launch in self.launches[:-1])

    @property
    def warnings(self) -> Sequence[str]:
        """Of all launches; what a resume warned of again stands once."""
        return list(dict.fromkeys(warning for launch in self.launches for warning in launch.warnings))

    @property
    def notes(self) -> Sequence[str]:
        """Notes of launches from before they trained; a note that a resume repeats stands once."""
        return list(dict.fromkeys(note for launch in self.launches for note in launch.notes))

    @property
    def declared(self) -> "Mapping[str, Metric]":
        """Declarations of its metrics, by name; where launches differ, in the last one. The metric that the setting
        `headline` names has the place `CHOSEN`.
        """
        from cookhouse.telemetry import CHOSEN, find_metric

        found = {metric.name: metric for launch in self.launches for metric in launch.metrics}
        chosen = self.launches[-1].headline
        return found if chosen is None else {**found, chosen: replace(find_metric(chosen, found), headline=CHOSEN)}

    @property
    def seconds(self) -> float:
        """Of all launches together; one that goes on counts up to now."""
        past = sum(launch.seconds for launch in self.launches)
        now = datetime.now(UTC) - self.launches[-1].started_at
        return past + (max(0.0, now.total_seconds()) if self.is_running else 0.0)


def read_history(folder: Path) -> History:
    """The launches of the run in a folder. One whose process is gone ends with the last sign of life in the folder.

    Raises:
        InputError: run.json is missing, or not what a run writes.
    """
    launches = read_launches(folder)
    if not launches:
        raise InputError(f"there is no {RUN_FILE} in {folder}, so no run was started there")
    last = launches[-1]
    if last.ended_at is not None:
        return History(launches=launches, is_running=False)
    if is_held(folder):
        return History(launches=launches, is_running=True)
    return History(launches=[*launches[:-1], over(folder, last)], is_running=False)


def read_launches(folder: Path) -> list[Launch]:
    """The launches as run.json has them, none if there is no such file.

    Raises:
        InputError: run.json is not what a run writes.
    """
    path = folder / RUN_FILE
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; that is no run's")
        return [_launch(row) for row in json.loads(path.read_text(encoding="utf-8"))["launches"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} does not hold the launches of a run ({error}); remove it") from error


def launches_text(launches: Sequence[Launch]) -> str:
    """Content of run.json."""
    return json.dumps({"launches": [asdict(launch) for launch in launches]}, indent=1, default=_as_json) + "\n"


def over(folder: Path, launch: Launch) -> Launch:
    """A launch whose process is gone, ended at the last sign of life in its folder."""
    return launch.ended(RunStatus.INTERRUPTED, _GONE, at=_last_sign(folder))


def _last_sign(folder: Path) -> datetime | None:
    seconds = [path.stat().st_mtime for name in _ACTIVE if (path := folder / name).exists()]
    return datetime.fromtimestamp(max(seconds), UTC) if seconds else None


def end_of(path: Path, num_bytes: int) -> bytes:
    """The last bytes of a file, none if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - num_bytes))
            return file.read(num_bytes)
    except OSError:
        return b""


def _launch(row: Mapping[str, Any]) -> Launch:
    known = {each.name for each in fields(Launch)}
    values = {name: value for name, value in row.items() if name in known}
    for name in ("started_at", "ended_at"):
        values[name] = None if values.get(name) is None else datetime.fromisoformat(values[name]).astimezone(UTC)
    if values["started_at"] is None:
        raise TypeError("started_at is missing")
    if values.get("status") is not None:
        values["status"] = RunStatus(values["status"])
    if values.get("machine") is not None:
        values["machine"] = Machine(**values["machine"])
    texts = ("error", "recipe", "adapters", "folder", "version", "revision", "service", "registered_model", "headline")
    for name in texts:
        if not isinstance(values.get(name), str | None):
            raise TypeError(f"{name} must be text")
    usage = values.get("usage")
    if usage is not None and not all(isinstance(amount, int | float) for amount in dict(usage).values()):
        raise TypeError("usage must be numbers by name")
    for name in ("warnings", "notes"):
        said = values.get(name, [])
        if not isinstance(said, list) or not all(isinstance(text, str) for text in said):
            raise TypeError(f"{name} must be texts")
    values["metrics"] = [_metric(row) for row in values.get("metrics", ())]
    if not isinstance(values.get("total_steps"), int | None):
        raise TypeError("total_steps must be a number")
    return Launch(**values)


def _metric(row: Mapping[str, Any]) -> "Metric":
    from cookhouse.telemetry import Metric, check_metric

    metric = Metric(**row)
    check_metric(metric)
    return metric


def _one_line(text: str, max_characters: int) -> str:
    return " ".join(text.split())[:max_characters]


def _as_json(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    raise TypeError(f"{type(value).__name__} is no JSON")
