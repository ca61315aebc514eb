"""The table of a sweep, made of the records of its runs: the metric that decides, and the best run by it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cookhouse.report import ABSENT, WAITING, RunRecord, SweepRow, SweepTable, other_data
from cookhouse.report.comparison import declared_by
from cookhouse.report.standing import doubt, is_number, stderr_at
from cookhouse.telemetry import Direction, Metric, find_metric, is_held_out, ranked


def sweep_table(
    parts: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, RunRecord],
    states: Mapping[str, str],
    *,
    metric: str | None,
    way: Direction | None,
    steps: Mapping[str, int] | None = None,
    rung_values: Mapping[str, tuple[float, float | None]] | None = None,
) -> SweepTable:
    """The table of runs by name, each with its settings; of those that have begun there are a record and a state.

    Without a `metric` it is the headline: the most telling one that every finished run has. Among runs that are equally
    good the next telling ones decide, and then the order.

    Of successive halving: `steps` after which each run was measured, and `rung_values`, with their standard errors, of
    those that have not finished, in place of what their rows have.
    """
    swept = swept_settings(list(parts.values()))
    finished = {name: record for name, record in records.items() if states.get(name) == "finished"}
    own = declared_by(list(records.values()))
    telling = _shared(list(finished.values()), own)
    metric = metric or next(iter(telling), None)
    known = None if metric is None else find_metric(metric, own)
    way = way or (None if known is None else known.direction)
    values = {} if metric is None else {name: measured_value(record, metric) for name, record in records.items()}
    if rung_values is not None:
        values = {name: value for name, value in values.items() if name in finished} | dict(rung_values)
    ways = {} if metric is None or way is None else {metric: way} | _ways(telling, own) | {metric: way}
    apart = "" if metric is None or way is None else other_data(metric, finished)
    best = _best(finished, ways) if ways and not apart else None
    remark = apart if best is None or known is None else _remark(known, best, finished, ways)
    rows = [
        SweepRow(
            name=name,
            settings={setting: part.get(setting, ABSENT) for setting in swept},
            state=states.get(name, WAITING),
            value=values[name][0] if name in values else None,
            stderr=values[name][1] if name in values else None,
            n=_n(records[name], metric) if metric is not None and name in finished else None,
            is_best=name == best,
            steps=None if steps is None else steps.get(name),
        )
        for name, part in parts.items()
    ]
    return SweepTable(swept=swept, metric=known, way=way, rows=rows, remark=remark)


def swept_settings(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the settings that differ among runs, in the order in which they are given."""
    names = dict.fromkeys(name for part in parts for name in part)
    return [name for name in names if any(_of(part, name) != _of(parts[0], name) for part in parts)]


def last_value(record: RunRecord, metric: str) -> float | None:
    """The value of a metric, finite or not, of the best weights where the run keeps these and it was measured of them;
    else the last one.
    """
    return measured_value(record, metric)[0]


def measured_value(record: RunRecord, metric: str) -> tuple[float | None, float | None]:
    """The value that `last_value` gives, and its standard error."""
    row = _last_row(record, metric)
    return (None, None) if row is None else (float(row[metric]), stderr_at(record.metrics, metric, row["step"]))


def _n(record: RunRecord, metric: str) -> float | None:
    """Items that the value of `last_value` is the mean of, where that was given."""
    row = _last_row(record, metric)
    n = None if row is None else row.get(f"{metric}_n")
    return float(n) if n is not None and is_number(n) else None


def paused_value(record: RunRecord, metric: str, step: int) -> tuple[float | None, float | None]:
    """The value of a metric, finite or not, of a run that is paused after `step` steps, and its standard error. What is
    held out is of the weights there, any other of the last of these steps. None: it was not measured then.
    """
    at = step if is_held_out(metric) else step - 1  # a row of training has the number of steps before it
    rows = [row for row in record.metrics if row["step"] == at and is_number(row.get(metric))]
    return (float(rows[-1][metric]), stderr_at(record.metrics, metric, at)) if rows else (None, None)


def _last_row(record: RunRecord, metric: str) -> Mapping[str, Any] | None:
    best = [row for row in record.metrics if record.best is not None and row["step"] == record.best.step]
    return next((row for row in (*best, *reversed(record.metrics)) if is_number(row.get(metric))), None)


def _of(part: Mapping[str, Any], name: str) -> tuple[type, Any]:
    """A value and its kind, so that true is not 1."""
    value = part.get(name, ABSENT)
    return bool if isinstance(value, bool) else object, value


def _best(records: Mapping[str, RunRecord], ways: Mapping[str, Direction]) -> str | None:
    """The best of some runs that have a finite value of the first metric; where they are equal, the others decide."""

    def rank(name: str) -> list[float]:
        """Less is better."""
        values = [(last_value(records[name], metric), way) for metric, way in ways.items()]
        signed = [math.inf if value is None else value if way == "less" else -value for value, way in values]
        return [value if math.isfinite(value) else math.inf for value in signed]

    ranks = {name: rank(name) for name in records}
    found = [name for name in ranks if math.isfinite(ranks[name][0])]
    return min(found, key=ranks.__getitem__) if found else None


def _remark(metric: Metric, best: str, records: Mapping[str, RunRecord], ways: Mapping[str, Direction]) -> str:
    """Reservation about the best run."""
    measured = {name: measured_value(record, metric.name) for name, record in records.items()}
    values = {name: value for name, (value, _) in measured.items() if value is not None and math.isfinite(value)}
    errors = {name: error for name, (_, error) in measured.items()}
    against = doubt(metric, best, values, errors)
    ties = [name for name, value in values.items() if value == values[best] and name != best]
    if not ties:
        return against
    decisive = [
        name for name in ways if any(last_value(records[tie], name) != last_value(records[best], name) for tie in ties)
    ]
    return f"{against}; {f'{decisive[0]} decided' if decisive else 'the first of them is taken'}"


def _ways(names: Sequence[str], own: Mapping[str, Metric]) -> dict[str, Direction]:
    return {name: way for name in names if (way := find_metric(name, own).direction) is not None}


def _shared(records: Sequence[RunRecord], own: Mapping[str, Metric]) -> list[str]:
    """Metrics that every one of some runs has, the most telling one first."""
    names = [set(_numbers(record)) for record in records]
    return ranked(sorted(set.intersection(*names)), own) if names else []


def _numbers(record: RunRecord) -> Iterator[str]:
    return (name for row in record.metrics for name, value in row.items() if is_number(value))
