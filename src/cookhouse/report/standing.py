"""Standing of a run among several by a metric, and what speaks against calling it the best."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cookhouse.report.record import RunRecord
from cookhouse.telemetry import Metric, is_held_out

_STDERR = "_stderr"
_SHOWN = 4
"""Names at most."""


def stderr_at(rows: Sequence[Mapping[str, Any]], metric: str, step: int) -> float | None:
    """The standard error of a metric at a step, where it was measured."""
    errors = (row.get(metric + _STDERR) for row in reversed(rows) if row["step"] == step)
    return next((float(error) for error in errors if error is not None and is_number(error)), None)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def doubt(metric: Metric, best: str, values: Mapping[str, float], errors: Mapping[str, float | None]) -> str:
    """Why the run with the best value is not clearly better than every other: a tie, or a standard error that is wider
    than the difference; empty if it is. `errors` are the standard errors of the values that have one.
    """
    ties = [name for name, value in values.items() if value == values[best]]
    if len(ties) > 1:
        return f"a tie of {_joined(ties)}"
    near = sorted(_within_error(best, values, errors))
    if not near:
        return ""
    difference, error, name = near[0]
    amounts = (metric.difference_text(0.0, amount).lstrip("+±") for amount in (difference, error))
    return "{} and {} differ by {}, less than the standard error of that, {}".format(best, name, *amounts)


def _within_error(
    best: str, values: Mapping[str, float], errors: Mapping[str, float | None]
) -> Iterator[tuple[float, float, str]]:
    """Difference from the best, its standard error, and the run, of each that is within one standard error."""
    own = errors[best]
    for name, value in values.items():
        other = errors[name]
        if name == best or own is None or other is None:
            continue
        error = math.hypot(own, other)
        if abs(value - values[best]) < error:
            yield abs(value - values[best]), error, name


def other_data(metric: str, records: Mapping[str, RunRecord]) -> str:
    """In words, that runs were measured by a metric on different data; empty where nothing tells that they were.

    A held-out metric is measured on the test data, and where a run names none, on a part of its training data. What an
    evaluator of the settings measures under its own name has its own data.
    """
    if is_held_out(metric) and any(_is_of_evaluator(metric, record) for record in records.values()):
        return ""
    part = "test" if is_held_out(metric) else "train"
    if _differ([_fingerprints(record, part) for record in records.values()]):
        what = "evaluated" if is_held_out(metric) else "trained"
        return f"the runs were {what} on different data (its fingerprints differ)"
    if is_held_out(metric) and _differ([_asked(record) for record in records.values()]):
        return "the runs were evaluated on different data (they were asked other questions)"
    return ""


def _fingerprints(record: RunRecord, part: str) -> Sequence[object]:
    """Of the files that a run read for a purpose, in order."""
    found = [value for name, value in record.data.items() if name.startswith(part)]
    return found if found or part == "train" else _fingerprints(record, "train")


def _asked(record: RunRecord) -> Sequence[object]:
    """Questions of the last evaluation, without order."""
    answers = record.answers[max(record.answers)] if record.answers else ()
    return sorted({answer.question[:2] for answer in answers})


def _differ(several: Sequence[Sequence[object]]) -> bool:
    known = [some for some in several if some]
    return any(some != known[0] for some in known[1:])


def _is_of_evaluator(metric: str, record: RunRecord) -> bool:
    settings = record.config.get("config", {})
    named = ",".join(str(settings.get(name) or "") for name in ("evaluators", "infrequent_evaluators"))
    return metric.split("/")[1] in {name.strip() for name in named.split(",")}


def _joined(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [shown.pop()]
    return f"{', '.join(shown)} and {more[0]}"
