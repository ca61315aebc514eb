"""The metric that the setting `headline` names: a name that nothing writes is refused, one not measured is told."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cookhouse.algorithms.stages.state import RunContext
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.runs import Figure, RunFolder, RunResult, headline_of
from cookhouse.telemetry import (
    Event,
    MetricsRow,
    Record,
    Telemetry,
    declared_of,
    events,
    is_held_out,
    keys,
    ranked,
    read_metrics,
)

R = TypeVar("R")
_KNOWN = sorted(
    name for name in vars(keys).values() if isinstance(name, str) and ("/" in name or name in keys.BUILT_IN)
)
_FAMILIES = {name.partition("/")[0] for name in _KNOWN if "/" in name}


def check_headline(name: str | None) -> None:
    """Raises `UnknownNameError` for a name that no run writes: of no known family and not declared in this process.
    Whether the run measures a name within a family is known once it has been evaluated.
    """
    if name is None or name in _KNOWN or declared_of([name]):
        return
    family, slash, _ = name.partition("/")
    if not slash or family not in _FAMILIES:
        way_out = "a metric of your own is declared with declare_metric"
        raise UnknownNameError("metric of headline", name, _KNOWN, way_out=way_out)


class HeadlineWatch:
    """Warns once where a run does not measure the metric: after its first row, or at its end where it may come late."""

    def __init__(
        self, telemetry: Telemetry, name: str, rows: Iterable[Mapping[str, Any]] = (), *, comes_late: bool
    ) -> None:
        """`rows` are those from before a resume."""
        self._telemetry = telemetry
        self._name = name
        self._comes_late = comes_late
        self._seen = {name for row in rows for name in row}
        self._has_warned = False

    def write(self, record: Record) -> None:
        if isinstance(record, MetricsRow):
            self._seen |= set(record.metrics)
            if not self._comes_late:
                self._check()
        if isinstance(record, Event) and record.name == events.RUN_END and record.text["status"] == "success":
            self._check()

    def _check(self) -> None:
        if self._name in self._seen or self._has_warned:
            return
        self._has_warned = True
        measured = ", ".join(ranked(sorted(self._seen)))
        self._telemetry.event(
            events.RUN_WARNING,
            text=f"headline={self._name} is not measured by this run, which has another headline; it measures "
            f"{measured}",
        )

    def close(self) -> None:
        """Nothing is held."""


def watch_headline(context: RunContext, folder: RunFolder) -> None:
    """Warn where the run does not measure what its setting names."""
    config = context.folder.config
    name = config.get("headline")
    if name is None:
        return
    is_late = not config.get("eval_at_start") or bool(config.get("infrequent_evaluators"))
    rows = read_metrics(folder.metrics)
    watch = HeadlineWatch(context.telemetry, name, rows, comes_late=is_held_out(name) and is_late)
    context.telemetry.add(watch)


def headline_first(result: RunResult[R]) -> RunResult[R]:
    """The result, whose summary begins with the figure that is the headline of its run."""
    summary = result.summary
    try:
        headline = headline_of(summary.folder)
    except InputError:  # the run left no folder
        headline = None
    if headline is None:
        return result
    found = [figure for figure in summary.figures if figure.name == headline.name]
    figure = Figure(
        name=headline.name,
        label=headline.metric.label,
        before=headline.before,
        after=headline.after,
        is_share=headline.metric.is_share,
        stderr=headline.stderr,
        n=headline.n,
    )
    others = [each for each in summary.figures if each.name != headline.name]
    return replace(result, summary=replace(summary, figures=[*(found or [figure]), *others]))
