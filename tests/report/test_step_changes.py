"""What is said to have happened at a step is what was out of the ordinary there."""

import math
from typing import Any

from cookhouse.report.step_changes import step_changes
from cookhouse.telemetry import Metric


def names(rows: list[dict[str, Any]], step: int, **own: Metric) -> list[str]:
    return [change.metric.name for change in step_changes(rows, step, own)]


def test_the_most_unusual_change_stands_first() -> None:
    # Catches a large metric that always jumps about before a small one that never did.
    rows = [
        {"step": step, "a/noisy": 1000.0 * (step % 2), "a/still": 1.0 + 0.001 * (step % 2), "a/same": 5.0}
        for step in range(10)
    ]
    rows.append({"step": 10, "a/noisy": 1000.0, "a/still": 0.5, "a/same": 5.0})
    rows[9]["a/noisy"] = 0.0
    assert names(rows, 10) == ["a/still", "a/noisy"]
    [still, noisy] = step_changes(rows, 10, {})
    assert still.times_usual is not None
    assert round(still.times_usual) == 501
    assert noisy.told == "0 → 1,000 (+1,000, 1 times its usual change)"


def test_what_comes_later_changes_nothing() -> None:
    rows: list[dict[str, Any]] = [{"step": step, "x": float(step)} for step in range(5)]
    assert step_changes(rows, 3, {}) == step_changes([*rows, {"step": 5, "x": 99.0}], 3, {})


def test_a_metric_that_never_moved_before() -> None:
    rows = [{"step": step, "x": float(step == 6)} for step in range(7)]
    [change] = step_changes(rows, 6, {"x": Metric("x", direction="less")})
    assert change.told == "0 → 1 (+1, which did not move before)"
    assert change.is_better is False


def test_early_steps_are_ordered_by_proportion() -> None:
    # Catches a second step of which nothing is said, as nothing is usual yet.
    rows = [{"step": 0, "x": 100.0, "y": 1.0}, {"step": 1, "x": 110.0, "y": 2.0}]
    assert names(rows, 1) == ["y", "x"]
    assert step_changes(rows, 1, {})[0].told == "1 → 2 (+1)"
    assert step_changes(rows, 0, {}) == []


def test_clocks_errors_and_what_is_held_out_are_left_out() -> None:
    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "time/step": step,
            "x_stderr": step,
            "test/nll": step,
            "nan": math.nan if step else 1.0,
            "word": "a",
            "flag": True,
            "rounding": 1.0 + step * 1e-9,
            "x": step + 1,
        }
        for step in range(2)
    ]
    assert names(rows, 1) == ["x"]


def test_rows_of_one_step_count_as_one() -> None:
    rows: list[dict[str, Any]] = [{"step": 0, "x": 1.0}, {"step": 1, "y": 1.0}, {"step": 1, "x": 2.0}]
    assert names(rows, 1) == ["x"]
