"""Single answers that are good or bad, and the pairs made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.data import ComparisonRow
from cookhouse.data.rows.comparisons import in_both_orders, read_pairs
from cookhouse.data.rows.labeled import labeled_from_row, matched
from cookhouse.errors import BadRowsError, InputError


def labeled(number: int, label: bool) -> dict[str, Any]:
    return {"prompt": f"q{number}", "completion": f"a{number}", "label": label}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "a", "label": True},
        {"prompt": [{"role": "user", "content": "q"}], "completion": "a", "label": True},
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "label": True,
        },
    ],
)
def test_every_shape_gives_the_same_row(row: dict[str, Any]) -> None:
    found = labeled_from_row(row, "f:1")
    assert found.prompt == [{"role": "user", "content": "q"}]
    assert found.completion == [{"role": "assistant", "content": "a"}]
    assert found.is_good


@pytest.mark.parametrize("more", [True, False])
def test_each_answer_is_in_a_pair_and_those_there_are_fewer_of_in_turn(more: bool) -> None:
    # Catches one answer that stands in every pair while the others of its kind are never learned from.
    rows = [labeled_from_row(labeled(number, more if number < 5 else not more), "f:1") for number in range(7)]
    pairs = [(pair.chosen[0]["content"], pair.rejected[0]["content"]) for pair in matched(rows)]
    found = pairs if more else [(rejected, chosen) for chosen, rejected in pairs]
    assert found == [("a0", "a5"), ("a1", "a6"), ("a2", "a5"), ("a3", "a6"), ("a4", "a5")]


def test_good_and_bad_answers_are_matched_and_what_there_is_less_of_begins_again(tmp_path: Path) -> None:
    # Catches answers that end up under another's prompt, labels that are swapped, and rows that are lost.
    rows = [labeled(1, True), labeled(2, False), labeled(3, True), labeled(4, True)]
    pairs = read_pairs(write(tmp_path / "kto.jsonl", rows))
    found = [(p.prompt[0]["content"], p.chosen[0]["content"], p.prompts[-1][0]["content"]) for p in pairs]
    assert found == [("q1", "a1", "q2"), ("q3", "a3", "q2"), ("q4", "a4", "q2")]
    assert {pair.rejected[0]["content"] for pair in pairs} == {"a2"}
    assert not any(pair.differs_in_last_turn for pair in pairs)


@pytest.mark.parametrize("label", [True, False])
def test_answers_of_one_kind_are_refused(label: bool) -> None:
    with pytest.raises(InputError, match=f"all 1 labels are {str(label).lower()}; learning from single answers"):
        matched([labeled_from_row(labeled(1, label), "f:1")])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "q", "completion": "", "label": True}, "a label of true or false is of a completion"),
        ({"completion": "a", "label": True}, "completion must be an answer of the assistant to a prompt"),
        ({"messages": [{"role": "user", "content": "q"}], "label": False}, "completion must be an answer"),
    ],
)
def test_what_is_no_judged_answer_is_refused_by_line(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRowsError, match=rf"kto\.jsonl:2: {said}"):
        read_pairs(write(tmp_path / "kto.jsonl", [labeled(1, True), row]))


def test_comparisons_in_both_orders_say_the_same_thing_twice() -> None:
    row = ComparisonRow(
        prompt=[{"role": "user", "content": "q"}],
        completion_a=[{"role": "assistant", "content": "a"}],
        completion_b=[{"role": "assistant", "content": "b"}],
        label="A",
        source="f:1",
    )
    one, other = in_both_orders([row])
    assert one == row
    assert (other.completion_a, other.completion_b, other.label) == (row.completion_b, row.completion_a, "B")
