"""Runs side by side: exactly the settings that differ, the best of each metric, and a page that obeys no text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pages.reader import Page

from cookhouse.report import ABSENT, Comparison, RecordedAnswer, RunRecord, compare, comparison_page, telling

HOSTILE = "{{ 7 * 7 }}</td></svg></title></style><script>alert(1)</script>\" onload='x' & \x1b[2J\u202e\ud800"
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e").replace("\ud800", "\\ud800")


def record(recipe: str = "supervised", rows: list[dict[str, Any]] | None = None, **settings: Any) -> RunRecord:
    return RunRecord(
        folder=Path("runs/x"),
        config={"recipe": recipe, "config": settings, "seed": 0},
        metrics=rows or [],
        checkpoints=(),
        answers={},
        rollouts=(),
        facts={"state": "finished", "duration": "4 s"},
    )


def differing(*records: RunRecord) -> dict[str, list[Any]]:
    compared = compare({str(index): each for index, each in enumerate(records)})
    return {setting.name: list(setting.values) for setting in compared.settings}


BASE: dict[str, Any] = {
    "learning_rate": 0.1,
    "seed": 0,
    "train_mlp": True,
    "test_path": None,
    "sinks": "",
    "log_path": "runs/a",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.2),
        ("seed", 1),
        ("train_mlp", False),
        ("train_mlp", 1),
        ("test_path", ""),
        ("test_path", 0),
        ("sinks", "wandb"),
    ],
)
def test_every_setting_that_differs_is_named_and_no_other(name: str, value: object) -> None:
    same = {**BASE, "log_path": "runs/b", "behavior_if_log_dir_exists": "resume"}
    assert differing(record(**BASE), record(**{**same, name: value})) == {name: [BASE[name], value]}
    assert differing(record(**BASE), record(**same), record(**BASE)) == {}


def test_one_run_among_many_is_enough() -> None:
    many = [record(**BASE)] * 5
    assert differing(*many, record(**{**BASE, "seed": 3})) == {"seed": [0, 0, 0, 0, 0, 3]}


def test_runs_of_different_recipes_are_compared_in_what_they_share() -> None:
    one, other = record(a=1, both=1, same=2), record("rl", b=1, both=3, same=2)
    assert differing(one, other) == {"recipe": ["supervised", "rl"], "both": [1, 3]}
    assert compare({"one": one, "other": other}).num_unshared == 2
    # Two of one recipe that differ in what the third has not.
    assert differing(one, record(a=2, both=1, same=2), other)["a"] == [1, 2, ABSENT]


def test_a_setting_that_one_version_did_not_have_differs() -> None:
    assert differing(record(a=1), record(a=1, new=None)) == {"new": [ABSENT, None]}


def test_a_run_without_a_record_takes_no_part() -> None:
    unknown = RunRecord(folder=Path("x"), config={}, metrics=[], checkpoints=(), answers={}, rollouts=())
    assert differing(record(a=1), unknown, record(a=2)) == {"a": [1, ABSENT, 2]}


def metrics(*rows: dict[str, Any]) -> dict[str, tuple[list[float | None], list[bool]]]:
    compared = compare({str(index): record(rows=[{"step": 0, **row}]) for index, row in enumerate(rows)})
    return {metric.name: (list(metric.values), list(metric.best)) for metric in compared.metrics}


def test_the_best_of_each_metric_is_marked() -> None:
    found = metrics(
        {"test/nll": 2.0, "test/exact_match": 0.5, "optim/grad_norm": 1.0, "train/loss": 1.0},
        {"test/nll": 1.0, "test/exact_match": 0.75, "optim/grad_norm": 9.0, "train/loss": float("nan")},
        {"test/nll": 1.0, "optim/grad_norm": 3.0, "train/loss": 1.0},
    )
    assert found["test/nll"] == ([2.0, 1.0, 1.0], [False] * 3), "two are as good as each other"
    assert found["test/exact_match"] == ([0.5, 0.75, None], [False, True, False])
    assert found["optim/grad_norm"][1] == [False] * 3, "nobody can tell which way is better"
    assert found["train/loss"] == ([1.0, None, 1.0], [False] * 3), "all are equal"


def last_rows(**values: float) -> list[dict[str, Any]]:
    return [{"step": 5, **{f"test/{name}": value for name, value in values.items()}}]


def noted(**runs: RunRecord) -> dict[str, tuple[list[bool], str]]:
    return {metric.name: (list(metric.best), metric.note) for metric in compare(runs).metrics}


def test_what_is_within_its_standard_error_is_no_best() -> None:
    # Catches a star on 52 of 100 against 50, which the next seed turns around.
    low, high, far = (record(rows=last_rows(exact_match=value, exact_match_stderr=0.05)) for value in (0.5, 0.52, 0.9))
    said = "high and low differ by 2 points, less than the standard error of that, 7.1 points"
    assert noted(low=low, high=high)["test/exact_match"] == ([False, False], said)
    assert noted(low=low, high=high, far=far)["test/exact_match"] == ([False, False, True], "")
    [metric] = [each for each in compare({"low": low, "far": far}).metrics if each.name == "test/exact_match"]
    assert metric.texts == ["50.0% ± 5.0%", "90.0% ± 5.0%"]


def test_a_count_has_no_star() -> None:
    # Catches "tool_errors 0.11 ★" of a run that calls no tool any more.
    some, none = (record(rows=[{"step": 5, "env/all/tool_errors": value}]) for value in (0.5, 0.11))
    assert noted(a=some, b=none)["env/all/tool_errors"] == ([False, False], "")


def test_a_tie_is_called_one() -> None:
    # Catches a star that nobody can explain.
    even, better, worse = (record(rows=last_rows(nll=value)) for value in (1.0, 1.0, 2.0))
    assert noted(a=even, b=better, c=worse)["test/nll"] == ([False] * 3, "a tie of a and b")
    assert noted(a=even, c=worse)["test/nll"] == ([True, False], "")
    many = {str(index): even for index in range(9)}
    assert noted(**many)["test/nll"][1] == "a tie of 0, 1, 2, 3 and 5 more"
    assert "No ★ for test/nll: a tie of a and b." in Page(comparison_page(compare({"a": even, "b": better}))).text


def test_runs_that_were_evaluated_on_different_data_have_no_best() -> None:
    # Catches a star for the run with the easier test set.
    one, other = (
        replace(record(rows=last_rows(nll=value)), data={"train": {"marks": ["t"]}, "test": {"marks": [mark]}})
        for value, mark in ((1.0, "a"), (2.0, "b"))
    )
    said = "the runs were evaluated on different data (its fingerprints differ)"
    assert noted(one=one, other=other)["test/nll"] == ([False, False], said)
    assert noted(one=one, other=replace(other, data=one.data))["test/nll"] == ([True, False], "")
    # Held out of the data that it is trained on.
    held_out = [replace(each, data={"train": each.data["test"]}) for each in (one, other)]
    assert noted(one=held_out[0], other=held_out[1])["test/nll"] == ([False, False], said)
    # The same file, of which other rows are held out.
    asked = [RecordedAnswer(prompt=said, expected="", answer="", is_correct=False) for said in ("a", "b")]
    parts = [replace(each, data={}, answers={5: [said]}) for each, said in zip((one, other), asked, strict=True)]
    said = "the runs were evaluated on different data (they were asked other questions)"
    assert noted(one=parts[0], other=parts[1])["test/nll"] == ([False, False], said)


def test_a_benchmark_has_its_own_data() -> None:
    # Catches two training sets that cannot be told apart by the benchmark that is to tell them apart.
    settings = {"evaluators": "gsm8k"}
    one, other = (
        replace(
            record(rows=[{"step": 1, "test/gsm8k/correct": value, "train/loss": value}], **settings),
            data={"train": {"marks": [str(value)]}},
        )
        for value in (0.25, 0.5)
    )
    found = noted(one=one, other=other)
    assert found["test/gsm8k/correct"] == ([False, True], "")
    said = "the runs were trained on different data (its fingerprints differ)"
    assert found["train/loss"] == ([False, False], said)


def test_the_last_value_of_several_steps_counts() -> None:
    rows = [{"step": 0, "test/nll": 9.0}, {"step": 5, "test/nll": 3.0}, {"step": 6, "train/loss": 1.0}]
    compared = compare({"a": record(rows=rows), "b": record(rows=rows[:1])})
    assert {metric.name: list(metric.values) for metric in compared.metrics} == {
        "train/loss": [1.0, None],
        "test/nll": [3.0, 9.0],
    }


def test_a_terminal_is_told_what_tells_most() -> None:
    names = ("time/step_seconds", "test/nll", "test/nll_tokens", "test/x_stderr", "train/loss", "optim/lr", "test/mine")
    compared = compare({"a": record(rows=[{"step": 0, **dict.fromkeys(names, 1.0)}])})
    assert [metric.name for metric in telling(compared.metrics)] == ["test/nll", "train/loss", "test/mine"]


def compared(said: str = "hello") -> Comparison:
    rows = [{"step": step, "train/loss": 3.0 - step, f"test/{said}": 1.0, "test/nll": 1.0} for step in range(3)]
    others = [{"step": step, "train/loss": 2.0 - step} for step in range(9)]
    one, other = record(said, rows, model_name=said, **{f"k {said}": 1}), record(said, others, **{f"k {said}": said})
    return compare({f"A {said}": one, f"B {said}": other})


def test_the_page_has_each_curve_over_the_others_with_a_legend() -> None:
    page = Page(comparison_page(compared()))
    by_name = {chart["name"]: chart for chart in page.charts}
    assert list(by_name) == ["train/loss", "test/nll", "test/hello"]
    loss = by_name["train/loss"]
    assert [(line["label"], line["style"]) for line in loss["lines"]] == [
        ("A hello", "series-0"),
        ("B hello", "series-1"),
    ]
    assert [len(line["points"]) for line in loss["lines"]] == [3, 9]
    assert (loss["first"], loss["last"]) == (0, 9), "each run has a scale of its own"
    assert [line["style"] for line in by_name["test/nll"]["lines"]] == ["series-0"]
    assert page.values("class").count("keys legend sheet") == 1
    assert page.values("class").count("swatch series-1") == 5
    assert "★" in page.text


def test_more_runs_than_colors_are_told_apart() -> None:
    rows = [{"step": step, "train/loss": 1.0} for step in range(3)]
    [chart] = Page(comparison_page(compare({str(index): record(rows=rows) for index in range(10)}))).charts
    styles = [line["style"] for line in chart["lines"]]
    assert len(set(styles)) == len(styles) == 10


def test_no_text_of_a_run_is_obeyed() -> None:
    html = comparison_page(compared(HOSTILE))
    html.encode()  # half a surrogate pair could not be written to a file
    page, harmless = Page(html), Page(comparison_page(compared()))
    assert page.tags == harmless.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    for text in (f"A {SHOWN}", f"B {SHOWN}", f"k {SHOWN}", f"test/{SHOWN}"):
        assert text in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_nothing_to_compare_is_a_page_that_says_so() -> None:
    page = Page(comparison_page(compare({"a": record(), "b": record()})))
    assert "None." in page.text
    assert "Curves" not in page.text


def test_values_are_shown_as_they_are_set() -> None:
    text = Page(comparison_page(compare({"a": record(x=None, y=[1, "é"]), "b": record(x=True, y=0.5)}))).text
    for value in (None, True, [1, "é"], 0.5):
        assert json.dumps(value, ensure_ascii=False) in text
