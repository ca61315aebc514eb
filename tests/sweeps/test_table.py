"""The table of a sweep: which metric decides, which run is the best, and which settings differ."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from cookhouse.report import RunRecord, SweepTable
from cookhouse.sweeps.table import paused_value, sweep_table, swept_settings
from cookhouse.telemetry import find_metric
from cookhouse.weights.checkpoints import Checkpoint

Way = Literal["less", "more"]


def record(*rows: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        folder=Path("nowhere"),
        config={},
        metrics=[{"step": step, **row} for step, row in enumerate(rows)],
        checkpoints=[],
        answers={},
        rollouts=[],
    )


def table(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    metric: str | None = None,
    way: Way | None = None,
    **states: str,
) -> SweepTable:
    parts = {name: {"seed": number} for number, name in enumerate(runs)}
    records = {name: record(*rows) for name, rows in runs.items() if rows}
    found = {**dict.fromkeys(records, "finished"), **states}
    return sweep_table(parts, records, found, metric=metric, way=way)


def best(*arguments: Any, **settings: Any) -> str | None:
    row = table(*arguments, **settings).best
    return None if row is None else row.name


@pytest.mark.parametrize(
    ("metric", "way", "expected"),
    [
        ("test/nll", None, "a"),
        ("test/exact_match", None, "b"),
        ("test/nll", "more", "b"),
        ("test/exact_match", "less", "a"),
        ("time/step_seconds", None, None),  # nobody can tell
        ("time/step_seconds", "less", "b"),
    ],
)
def test_the_best_is_the_lowest_or_the_highest_as_the_metric_says(
    metric: str, way: Way | None, expected: str | None
) -> None:
    # Catches the worst run being registered for what it was trained to do best.
    runs = {
        "a": [{"test/nll": 1.0, "test/exact_match": 0.2, "time/step_seconds": 5.0}],
        "b": [{"test/nll": 2.0, "test/exact_match": 0.7, "time/step_seconds": 3.0}],
        "c": [{"test/nll": 1.5, "test/exact_match": 0.5, "time/step_seconds": 4.0}],
    }
    assert best(runs, metric, way) == expected


def test_the_last_value_counts() -> None:
    # Catches the first evaluation, which is of weights that no run keeps, and rows of other metrics after it.
    runs = {"a": [{"test/nll": 1.0}, {"test/nll": 3.0}, {"train/loss": 1.0}], "b": [{"test/nll": 2.0}]}
    made = table(runs, "test/nll")
    assert [row.value for row in made.rows] == [3.0, 2.0]
    assert made.best is not None
    assert made.best.name == "b"


def test_a_paused_run_counts_with_what_was_measured_at_its_step() -> None:
    # Catches best weights, or an earlier evaluation, that are compared with what others have after more steps.
    rows = [
        {"train/loss": 5.0},
        {"train/loss": 4.0, "test/nll": 0.5, "test/exact_match": 0.1},
        {"test/nll": 2.0, "test/nll_stderr": 0.25},
    ]
    best = Checkpoint(
        name="b", epoch=0, batch=1, step=1, final=False, state_path="s", sampler_path="s", best={"test/nll": 0.5}
    )
    made = replace(record(*rows), checkpoints=[best])
    assert paused_value(made, "test/nll", 2) == (2.0, 0.25)
    assert paused_value(made, "train/loss", 2) == (4.0, None)
    assert paused_value(made, "test/exact_match", 2) == (None, None)


def test_the_next_telling_metric_decides_among_equals() -> None:
    # Catches a tie that goes to whichever run was first.
    runs = {"a": [{"test/exact_match": 1.0, "test/nll": 0.5}], "b": [{"test/exact_match": 1.0, "test/nll": 0.4}]}
    assert best(runs, "test/exact_match") == "b"
    assert best({name: rows[:1] for name, rows in runs.items()}, "test/nll") == "b"
    alike = {"a": [{"test/nll": 0.5}], "b": [{"test/nll": 0.5}]}
    assert best(alike) == "a"


def test_what_decided_among_equals_is_said() -> None:
    # Catches a star on one of two runs of which the table shows the same value.
    runs = {"a": [{"test/exact_match": 1.0, "test/nll": 0.5}], "b": [{"test/exact_match": 1.0, "test/nll": 0.4}]}
    assert table(runs, "test/exact_match").remark == "a tie of a and b; test/nll decided"
    alike = {"a": [{"test/nll": 0.5}], "b": [{"test/nll": 0.5}]}
    assert table(alike).remark == "a tie of a and b; the first of them is taken"
    near = {name: [{"test/nll": value, "test/nll_stderr": 0.3}] for name, value in (("a", 0.5), ("b", 0.4))}
    assert table(near).remark == "b and a differ by 0.1, less than the standard error of that, 0.42426"
    assert table({"a": [{"test/nll": 0.5}], "b": [{"test/nll": 0.4}]}).remark == ""


def test_no_run_is_the_best_on_data_of_its_own() -> None:
    # Catches a sweep over test sets that finds the easiest.
    records = {
        name: replace(record({"test/nll": value}), data={"test": name}) for name, value in (("a", 1.0), ("b", 2.0))
    }
    made = sweep_table({"a": {}, "b": {}}, records, dict.fromkeys(records, "finished"), metric="test/nll", way=None)
    assert made.best is None
    assert made.remark == "the runs were evaluated on different data (its fingerprints differ)"


def test_only_a_run_that_has_finished_can_be_the_best() -> None:
    # Catches a run that failed or still runs, whose figures are of half of it.
    runs = {"a": [{"test/nll": 0.1}], "b": [{"test/nll": 0.5}], "c": []}
    made = table(runs, "test/nll", a="failed")
    assert made.best is not None
    assert made.best.name == "b"
    assert [(row.state, row.value) for row in made.rows] == [("failed", 0.1), ("finished", 0.5), ("waiting", None)]
    assert best(runs, "test/nll", a="running", b="interrupted") is None
    # The headline is a metric of those that finished, whatever the others lack.
    assert table({**runs, "a": [{"train/loss": 1.0}]}, a="failed").metric == find_metric("test/nll")


def test_settings_that_differ_are_told_with_their_types() -> None:
    # Catches true that is taken for 1, and a setting that only some of the runs have.
    assert swept_settings([{"a": 1, "b": True, "c": 0}, {"a": 1, "b": 1, "c": 0}]) == ["b"]
    assert swept_settings([{"a": 1, "b": 2}, {"a": 1, "b": 2, "z": None}]) == ["z"]
    assert swept_settings([{"a": 1, "b": 2}, {"b": 3, "a": 4}]) == ["a", "b"]


def test_a_value_has_its_standard_error() -> None:
    # Catches a table that shows a mean without how sure it is, and the error of another step than the value's.
    errors = [{"test/exact_match": 0.5, "test/exact_match_stderr": 0.3}, {"test/exact_match": 0.98}]
    runs = {"a": errors, "b": [{"test/exact_match": 0.99, "test/exact_match_stderr": 0.04}], "c": []}
    made = table(runs, metric="test/exact_match")
    assert [row.stderr for row in made.rows] == [None, 0.04, None]
    assert [made.text(row) for row in made.rows] == ["98%", "99.0% ± 4.0%", "-"]


def test_a_run_that_diverged_reads_as_that() -> None:
    made = table({"a": [{"test/nll": float("nan"), "test/nll_stderr": 0.1}]}, metric="test/nll")
    assert made.text(made.rows[0]) == "nan"
