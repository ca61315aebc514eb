"""The events in logs.log, read back: what `LogSink` writes in one line, for those that report what a run is doing."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cookhouse.telemetry import events
from cookhouse.telemetry.logs import LogSink
from cookhouse.telemetry.record import Event

_LINE: Final = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) INFO "
    + re.escape(LogSink.__module__)
    + r": (?P<name>[a-z_]+\.[a-z_]+) ?(?P<fields>.*)"
)
_STEP: Final = r"(?:step=(?P<step>\d{1,15}) )?"
_NUMBER: Final = r"[-+.\de]{1,30}"
_FIELDS: Final = {
    events.STAGE_START: _STEP + r"stage=(?P<stage>\S+) doing=(?P<doing>.*)",
    events.STAGE_PART: r"doing=(?P<doing>.*)",
    events.RUN_WAITING: _STEP + rf"what=(?P<what>.*) seconds=(?P<_seconds>{_NUMBER})",
    events.TRAINING_STEP: rf".* seconds_left_low=(?P<_seconds_left_low>{_NUMBER})"
    rf" seconds_left_high=(?P<_seconds_left_high>{_NUMBER}) seconds_left=(?P<_seconds_left>{_NUMBER})",
    events.EVAL_PROGRESS: rf"benchmark=(?P<benchmark>.*) done=(?P<_done>{_NUMBER}) total=(?P<_total>{_NUMBER})"
    rf" seconds_left=(?P<_seconds_left>{_NUMBER})",
}
"""Of the events whose fields are read; a metric is marked by an underscore before its name."""


@dataclass(frozen=True, kw_only=True)
class LoggedEvent:
    """An event, and when it was reported."""

    at: datetime
    event: Event


def read_event(line: str) -> LoggedEvent | None:
    """The event of a line of logs.log; None if it is another line. Of an event that is not read whole, the name."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        at = datetime.strptime(found["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone()
    except (ValueError, OverflowError):  # OverflowError: beyond the years that a clock has
        return None
    name = found["name"]
    fields = re.fullmatch(_FIELDS[name], found["fields"]) if name in _FIELDS else None
    if fields is None:
        return LoggedEvent(at=at, event=Event(name=name))
    groups = {key: value for key, value in fields.groupdict().items() if value is not None and key != "step"}
    step = fields.groupdict().get("step")
    try:
        metrics = {key.removeprefix("_"): float(value) for key, value in groups.items() if key[0] == "_"}
    except ValueError:
        return LoggedEvent(at=at, event=Event(name=name))
    if not all(map(math.isfinite, metrics.values())):
        return LoggedEvent(at=at, event=Event(name=name))
    text = {key: value for key, value in groups.items() if key[0] != "_"}
    return LoggedEvent(
        at=at, event=Event(name=name, step=None if step is None else int(step), metrics=metrics, text=text)
    )
