"""The most telling metric of a run."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cookhouse.telemetry.declared import find_metric, ranked
from cookhouse.telemetry.intervals import measured_text
from cookhouse.telemetry.metric import CHOSEN, Metric


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The most telling metric of a run."""

    metric: Metric
    before: float | None
    """Of its first step, before anything was learned; None if it was not measured."""
    after: float | None
    """The last one since; None if it was measured no more."""
    stderr: float | None = None
    """Standard error of the last value, where it was measured."""
    n: float | None = None
    """Items that the last value is the mean of, where that is known."""

    @property
    def name(self) -> str:
        return self.metric.name

    def as_json(self) -> dict[str, Any]:
        """Its name, and its values before and after."""
        return {"name": self.name, "before": self.before, "after": self.after}

    @property
    def text(self) -> str:
        """In a few words: `exact match 0% → 96%, 80 to 99%, of 25`."""
        last = self.before if self.after is None else self.after
        if last is None:
            return f"{self.metric.label} -"
        rounded = last if self.stderr is not None else float(f"{last:.3g}")
        text = measured_text(self.metric, rounded, self.stderr, self.n)
        if None in (self.before, self.after):
            return f"{self.metric.label} {text}"
        return f"{self.metric.label} {self.metric.text(float(f'{self.before:.3g}'))} → {text}"


def choose_headline(
    names: Iterable[str],
    first: Mapping[str, Any],
    last: Callable[[str], Mapping[str, Any]],
    own: Mapping[str, Metric] | None = None,
) -> Headline | None:
    """The most telling one of some metrics, from the row of the first step and the last row that has a metric.

    What was measured before and after goes before what was measured once, and what the run's setting names before both.
    `own` as in `find_metric`.
    """
    chosen = [metric.name for metric in (own or {}).values() if metric.headline == CHOSEN]
    headlines = [_headline(find_metric(name, own), first, last(name)) for name in ranked((*names, *chosen), own)]
    named = [each for each in headlines if each.metric.headline == CHOSEN]
    whole = [each for each in headlines if None not in (each.before, each.after)]
    return next((each for each in (*named, *whole, *headlines) if (each.before, each.after) != (None, None)), None)


def _headline(metric: Metric, first: Mapping[str, Any], last: Mapping[str, Any]) -> Headline:
    before, after = _number(first.get(metric.name)), _number(last.get(metric.name))
    is_later = last.get("step") != first.get("step")
    stderr, n = (_number((last if is_later else first).get(f"{metric.name}_{end}")) for end in ("stderr", "n"))
    return Headline(metric=metric, before=before, after=after if is_later else None, stderr=stderr, n=n)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < sys.float_info.max else None
