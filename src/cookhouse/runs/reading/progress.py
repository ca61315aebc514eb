"""Progress of a run that is on, from the end of its log: what it does, what it waits for, how long it will take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cookhouse.runs.listing.overview import RunOverview
from cookhouse.runs.names import LOG_FILE
from cookhouse.runs.reading.ranges import read_before
from cookhouse.telemetry import LoggedEvent, events, read_event, span

_LOG_BYTES = 1 << 16
_AGAIN_SECONDS = 60.0
"""A wait that has not been reported for so long is over: a run reports one every ten seconds."""
_OVER = {events.RUN_END, events.TRAINING_STOPPED}


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Progress of a run that is on. Unknown fields are None."""

    doing: str
    """In words, as the terminal has it."""
    waiting_for: str | None = None
    """The end of a sentence, `the session to open`, where it stands still."""
    waited_seconds: float | None = None
    seconds_left: float | None = None
    """After its last step, as the run itself estimates it."""
    seconds_left_low: float | None = None
    seconds_left_high: float | None = None
    """Both are the same once ten steps are timed."""

    @property
    def left_text(self) -> str | None:
        """Words on the time left; None where it is unknown."""
        if self.seconds_left_low is None or self.seconds_left_high is None:
            return None
        return f"{span(self.seconds_left_low, self.seconds_left_high)} left"

    def as_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return asdict(self)


def progress_of(overview: RunOverview, now: datetime | None = None) -> RunProgress:
    """Of a run that is on; `now` is for tests."""
    logged = _events(overview.path / LOG_FILE)
    left = _time_left(logged)
    return RunProgress(
        **_doing(logged, now or datetime.now(UTC)),
        seconds_left=left.get("seconds_left"),
        seconds_left_low=left.get("seconds_left_low"),
        seconds_left_high=left.get("seconds_left_high"),
    )


def _events(path: Path) -> list[LoggedEvent]:
    """Events at the end of a log."""
    found = read_before(path, max_bytes=_LOG_BYTES)
    lines = [] if found is None else found.data.decode(errors="replace").split("\n")
    return [logged for line in lines if (logged := read_event(line)) is not None]


def _doing(logged: Sequence[LoggedEvent], now: datetime) -> dict[str, Any]:
    doing = _stage(each for each in logged if each.event.name != events.RUN_WAITING)
    last = logged[-1] if logged else None
    if last is None or last.event.name != events.RUN_WAITING or "what" not in last.event.text:
        return {"doing": doing}
    since = max(0.0, (now - last.at).total_seconds())
    if since > _AGAIN_SECONDS:
        return {"doing": doing}
    waited = last.event.metrics["seconds"] + since
    return {"doing": doing, "waiting_for": last.event.text["what"], "waited_seconds": round(waited, 1)}


def _stage(logged: Iterable[LoggedEvent]) -> str:
    """Stage that the last of some events began."""
    doing = "starting"
    for each in logged:
        name, text, metrics = each.event.name, each.event.text, each.event.metrics
        if name == events.RUN_START:
            doing = "opening the session"
        elif name in (events.STAGE_START, events.STAGE_PART) and "doing" in text:
            doing = text["doing"]
        elif name == events.EVAL_PROGRESS and "benchmark" in text:
            doing = f"evaluating: {text['benchmark']} {metrics['done']:,.0f} of {metrics['total']:,.0f}"
        elif name == events.RUN_INTERRUPT:
            doing = "interrupted: finishing the steps in flight, then saving"
        elif name.endswith(".step") or name in (events.EVAL_COMPLETE, events.RL_ROLLOUT_COMPLETE):
            doing = "training"
        elif name in _OVER:
            doing = "ending"
    return doing


def _time_left(logged: Sequence[LoggedEvent]) -> dict[str, float]:
    """What the last step of the launch reported, by its names in the event; empty where it reported none."""
    last: Mapping[str, float] = {}
    for each in logged:
        if each.event.name in (events.RUN_START, events.TRAINING_STEP):
            last = each.event.metrics
    return {name: round(value, 1) for name, value in last.items()}
