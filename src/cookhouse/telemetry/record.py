"""Records of telemetry: events, metric rows and spans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

Values: TypeAlias = Mapping[str, float | str]
"""Figures by name; and text, where a step or an evaluator of the user's own gave some."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something happened. `telemetry.events` has the names, with what each carries."""

    name: str
    step: int | None = None
    """Optimizer steps finished or, for an evaluation, taken by the weights it saw."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    text: Mapping[str, str] = field(default_factory=dict)
    """Everything that is not a number, by name."""


@dataclass(frozen=True, kw_only=True)
class MetricsRow:
    """All metrics of one step; written once per step."""

    step: int
    metrics: Values


@dataclass(frozen=True, kw_only=True)
class Span:
    """One execution of something named; seconds are of `time.perf_counter`."""

    name: str
    start_seconds: float
    end_seconds: float
    step: int | None = None
    error: str | None = None


Record = Event | MetricsRow | Span


def split_values(values: Values) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers of a row, and its text."""
    text = {name: value for name, value in values.items() if isinstance(value, str)}
    return {name: value for name, value in values.items() if not isinstance(value, str)}, text


class Sink(Protocol):
    """Takes records; one that raises is reported once and then left alone, and never stops a run."""

    def write(self, record: Record) -> None:
        """Take a record; called from the event loop, so it must be quick, unless the sink was named in the settings: it
        is in a `Background` then.
        """

    def close(self) -> None:
        """Flush and release; called once, also after a failure."""


@runtime_checkable
class Telling(Protocol):
    """A sink with a person before it."""

    def tell(self, text: str) -> None:
        """Say what no record has; from any thread."""
