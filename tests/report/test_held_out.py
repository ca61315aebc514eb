"""The table of held-out metrics: what stands beside a metric, and what has a row of its own."""

from typing import Any

import pytest

from cookhouse.report.columns import curves_of
from cookhouse.report.held_out import held_out_table

ONE: dict[str, Any] = {
    "step": 0,
    "test/sums/correct": 0.25,
    "test/sums/correct_stderr": 0.125,
    "test/sums/correct_n": 12.0,
    "test/nll": 2.5,
    "test/rate_low": 0.5,
    "test/left_n": 3.0,
    "train/loss": 1.0,
}


def test_a_single_evaluation_has_values() -> None:
    """Catches rows for standard errors beside their metric, and columns that say the same three times."""
    table = held_out_table(curves_of([ONE], own={}))
    assert table is not None
    assert table.header == ["metric", "value"]
    assert table.rows == [
        ["test/nll", "2.5"],
        ["test/left_n", "3"],
        ["test/rate_low", "0.5"],
        ["test/sums/correct", "25%, 9 to 53%, of 12"],
    ]


def test_of_several_the_first_the_best_and_the_last() -> None:
    later = [
        {"step": 2, "test/nll": 1.0, "test/sums/correct": 0.75},
        {"step": 4, "test/nll": 1.5, "test/sums/correct": 0.5, "test/sums/correct_stderr": 0.1},
    ]
    table = held_out_table(curves_of([ONE, *later], own={}))
    assert table is not None
    assert table.header == ["metric", "first", "best", "last", "difference"]
    rows = {row[0]: list(row[1:]) for row in table.rows}
    assert rows["test/nll"] == ["2.5 (before training)", "1 (after step 2)", "1.5 (after step 4)", "−1"]
    assert rows["test/sums/correct"] == [
        "25%, 9 to 53%, of 12 (before training)",
        "75% (after step 2)",
        "50% ± 10% (after step 4)",
        "+25 points",
    ]
    assert rows["test/rate_low"][-1] == "-"


@pytest.mark.parametrize("rows", [[], [{"step": 1, "train/loss": 1.0}], [{"step": 1, "test/nll": float("nan")}]])
def test_nothing_measured(rows: list[dict[str, Any]]) -> None:
    assert held_out_table(curves_of(rows, own={})) is None
