"""What is measured of a run at its rung, and whether it can be compared with the others there."""

import math
from collections.abc import Mapping
from typing import Any

from cookhouse.errors import InputError
from cookhouse.report import RunRecord, measured_value, other_data, paused_value
from cookhouse.runs import RunSummary
from cookhouse.runs.halving import Halving, RungResult
from cookhouse.telemetry import find_metric, keys, ranked


def rung_result(halving: Halving, run: str, rung: int, record: RunRecord, summary: RunSummary) -> RungResult | None:
    """What was measured of a run that is paused at a rung, or has finished; None: the metric was not."""
    assert halving.metric is not None
    value, stderr = _value(record, halving.metric, summary)
    if value is None:
        return None
    is_finite = math.isfinite(value)
    return RungResult(
        run=run,
        rung=rung,
        step=summary.num_steps,
        value=value if is_finite else None,
        stderr=stderr if is_finite else None,
        is_finished=not summary.is_paused,
    )


def _value(record: RunRecord, metric: str, summary: RunSummary) -> tuple[float | None, float | None]:
    # The best weights of a run that keeps them may be those of an earlier step, at which no other run is compared.
    return paused_value(record, metric, summary.num_steps) if summary.is_paused else measured_value(record, metric)


def choose_metric(halving: Halving, record: RunRecord, summary: RunSummary) -> None:
    """Note by which metric, and in which direction, the runs are compared, from the first that is measured.

    Raises:
        InputError: it did not measure the metric, or that has no direction.
    """
    names: Mapping[str, Any] = {name: value for row in record.metrics for name, value in row.items()}
    numbers = [name for name in names if name != "step" and _value(record, name, summary)[0] is not None]
    own = record.declared
    directed = [name for name in ranked(numbers, own) if find_metric(name, own).direction is not None]
    if halving.metric is None and directed:  # the loss moves from the first step on, where scores may all be 0
        halving.metric = keys.TEST_NLL if keys.TEST_NLL in directed else directed[0]
    if halving.metric is None:
        raise InputError("the runs measure nothing that has a direction; set metric and direction")
    if halving.metric not in numbers:
        others = [name for name in numbers if name not in directed]
        raise InputError(f"the runs do not measure {halving.metric}; they measure {', '.join([*directed, *others])}")
    halving.direction = halving.direction or find_metric(halving.metric, own).direction
    if halving.direction is None:
        raise InputError(
            f"{halving.metric} has no direction; set direction=less or direction=more, or compare by one of "
            f"{', '.join(directed)}"
        )


def check_steps(run: str, summary: RunSummary, max_steps: int) -> None:
    """Raise `InputError` where the data of a run end before `max_steps`: its rungs would be others.

    A run that stops early by its own settings is compared as it is.
    """
    steps = summary.num_steps if summary.stopped is None else summary.total_steps
    if steps < max_steps:
        raise InputError(
            f"{run} has data for {steps:,} of the {max_steps:,} steps, and runs are compared at equal steps; raise "
            "num_epochs or lower max_steps"
        )


def check_data(metric: str, records: Mapping[str, RunRecord]) -> None:
    """Raise `InputError` where runs were measured on different data."""
    if apart := other_data(metric, records):
        raise InputError(f"{apart}: {' and '.join(records)}; give them the same data, or leave min_steps out")
