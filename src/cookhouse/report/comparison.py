"""Runs side by side: what differs among their settings, and their metrics."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cookhouse.report.columns import MetricColumns
from cookhouse.report.curves import Curve
from cookhouse.report.record import RunRecord
from cookhouse.report.standing import doubt, other_data
from cookhouse.telemetry import COMPANIONS, Metric, find_metric, is_held_out, keys, measured_text, ranked

OF_THE_FOLDER = {"log_path", "behavior_if_log_dir_exists"}
"""Settings that say where a run lies, not what it is."""


class _Absent:
    def __str__(self) -> str:
        return "-"


ABSENT: Final = _Absent()
"""A setting that a run does not have."""


def setting_text(value: object) -> str:
    """A setting's value as one reads it."""
    if value is ABSENT or isinstance(value, str):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """A setting that differs."""

    name: str
    values: Sequence[Any]
    """Of each run, `ABSENT` where it has none."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """A metric of which at least one run has a value."""

    metric: Metric
    values: Sequence[float | None]
    """The last of each run."""
    best: Sequence[bool]
    """Of at most one: it is better than every other by more than the standard error of the difference."""
    stderrs: Sequence[float | None]
    """Of the values, where they were measured."""
    ns: Sequence[float | None]
    """Items that the values are the means of, where that was given."""
    note: str
    """Why none is the best; empty where one is, and where neither way is better."""

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def texts(self) -> Sequence[str]:
        """The values as a person reads them, with their intervals or standard errors."""
        return [measured_text(self.metric, *each) for each in zip(self.values, self.stderrs, self.ns, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs or more."""

    names: Sequence[str]
    records: Sequence[RunRecord]
    settings: Sequence[ComparedSetting]
    num_unshared: int
    """Settings that only some of the runs have, since the recipes of the others have them not."""
    metrics: Sequence[ComparedMetric]
    """The headline, then in the order of charts."""
    columns: Sequence[MetricColumns]
    """The metrics of each run."""

    @cached_property
    def curves(self) -> Mapping[str, Sequence[Curve | None]]:
        """Of each run, by metric."""
        own = declared_by(self.records)
        names = dict.fromkeys(name for columns in self.columns for name in columns.names)
        return {
            name: [columns.curve(name, own) if columns.num_values(name) else None for columns in self.columns]
            for name in names
        }


def compare(records: Mapping[str, RunRecord]) -> Comparison:
    """Compare runs: their differences, by the names that they go by."""
    return compare_columns(records, {name: MetricColumns(record.metrics) for name, record in records.items()})


def compare_columns(records: Mapping[str, RunRecord], columns: Mapping[str, MetricColumns]) -> Comparison:
    """As `compare`, of runs whose metrics are there as columns; those of the records are not read."""
    whole = list(records.values())
    settings = {name: [_setting(record, name) for record in whole] for name in _setting_names(whole)}
    own = declared_by(whole)
    names = dict.fromkeys(name for theirs in columns.values() for name in theirs.names)
    found = [each for name in names if any(_is_there(each := _metric(find_metric(name, own), records, columns)))]
    headline = next(iter(ranked((each.name for each in found), own)), None)
    return Comparison(
        names=list(records),
        records=whole,
        settings=[
            ComparedSetting(name=name, values=values) for name, values in settings.items() if _differs(values, whole)
        ],
        num_unshared=sum(ABSENT in values and not _differs(values, whole) for values in settings.values()),
        metrics=sorted(found, key=lambda compared: (compared.name != headline, *_rank(compared))),
        columns=list(columns.values()),
    )


def declared_by(records: Sequence[RunRecord]) -> dict[str, Metric]:
    """Metrics as runs declared them, by name; where they differ, as in the last one."""
    return {name: metric for record in records for name, metric in record.declared.items()}


def _setting_names(records: Sequence[RunRecord]) -> list[str]:
    names = dict.fromkeys(name for record in records for name in record.config.get("config", {}))
    return ["recipe", *(name for name in names if name not in OF_THE_FOLDER)]


def _setting(record: RunRecord, name: str) -> Any:
    if name == "recipe":
        return record.config.get("recipe", ABSENT)
    return record.config.get("config", {}).get(name, ABSENT)


def _differs(values: Sequence[Any], records: Sequence[RunRecord]) -> bool:
    """True if those that can have it differ. A run whose recipe has it among others that have it not counts, too."""
    recipes = [record.config.get("recipe") for record in records]
    owners = {recipe for recipe, value in zip(recipes, values, strict=True) if value is not ABSENT}
    theirs = [value for recipe, value in zip(recipes, values, strict=True) if recipe in owners]
    return any(not _same(value, theirs[0]) for value in theirs[1:])


def _same(one: Any, other: Any) -> bool:
    """Equal, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _metric(metric: Metric, records: Mapping[str, RunRecord], columns: Mapping[str, MetricColumns]) -> ComparedMetric:
    last = {name: columns[name].last(metric.name) for name in records}
    found = {name: point[1] for name, point in last.items() if point is not None}
    errors, ns = (
        {
            name: None if point is None else columns[name].value_at(f"{metric.name}_{end}", point[0])
            for name, point in last.items()
        }
        for end in ("stderr", "n")
    )
    top, note = None if _is_count(metric) else metric.best(found.values()), ""
    best = next((name for name, value in found.items() if value == top), None) if len(found) > 1 else None
    if best is not None:
        measured = {name: records[name] for name in found}
        note = other_data(metric.name, measured) or doubt(metric, best, found, errors)
    return ComparedMetric(
        metric=metric,
        values=[found.get(name) for name in records],
        best=[name == best and not note for name in records],
        stderrs=list(errors.values()),
        ns=list(ns.values()),
        note=note,
    )


def _is_count(metric: Metric) -> bool:
    """True if a metric counts what went wrong: a run that calls no tool makes no errors of tools."""
    return not metric.is_share and not keys.COUNTS.isdisjoint(metric.name.split("/"))


def _is_there(metric: ComparedMetric) -> Iterator[bool]:
    return (value is not None for value in metric.values)


def _rank(compared: ComparedMetric) -> tuple[bool, int, str]:
    metric = compared.metric
    place = int(not is_held_out(metric.name)) if metric.chart is None else metric.chart
    return metric.chart is None, place, metric.name


def telling(metrics: Sequence[ComparedMetric]) -> list[ComparedMetric]:
    """Metrics worth a terminal's line: what is held out, and what of training has a place and a way that is better."""
    return [compared for compared in metrics if _tells(compared.metric)]


def _tells(metric: Metric) -> bool:
    if is_held_out(metric.name):
        return metric.chart is not None or not metric.name.endswith((*COMPANIONS, "_tokens"))
    return metric.chart is not None and metric.direction is not None
