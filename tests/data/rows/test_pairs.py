"""Rows of preferences, comparisons and prompts."""

from pathlib import Path
from typing import Any

import pytest

from cookhouse.data import comparison_from_row, prompt_from_row, question_from_row, read_comparisons
from cookhouse.data.rows.labeled import labeled_from_row
from cookhouse.data.rows.pairs import preference_from_row, read_preferences
from cookhouse.errors import BadRowsError, InputError

USER, GOOD, BAD = ({"role": r, "content": c} for r, c in (("user", "q"), ("assistant", "good"), ("assistant", "bad")))
SYSTEM = {"role": "system", "content": "s"}
SEEN = {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "q"}]}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": "q", "chosen": [USER, GOOD], "rejected": [USER, BAD], "score_chosen": 9.0},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"},
        {"question": "q", "chosen": GOOD, "rejected": BAD},
        {"conversations": None, "prompt": "q", "chosen": {"from": "gpt", "value": "good"}, "rejected": "bad"},
    ],
)
def test_every_shape_gives_the_same_preference(row: dict[str, Any]) -> None:
    pair = preference_from_row(row, "f:1")
    assert (pair.prompt, pair.chosen, pair.rejected) == ([USER], [GOOD], [BAD])
    assert (comparison_from_row(row, "f:1").label, pair.source) == ("A", "f:1")


def test_a_system_message_stands_before_the_prompt() -> None:
    pair = preference_from_row({"system": "s", "prompt": "q", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "f:1")
    assert (pair.prompt, pair.chosen) == ([SYSTEM, USER], [GOOD])


def test_turns_before_the_last_are_the_prompt() -> None:
    text = "\n\nHuman: a\n\nAssistant: b\n\nHuman: q says Human: hi\n\nAssistant: "
    pair = preference_from_row({"chosen": text + "good", "rejected": text + "bad"}, "f:1")
    assert [message["content"] for message in pair.prompt] == ["a", "b", "q says Human: hi"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "f:1: a row must be an object, not list"),
        ({"prompt": "q", "chosen": "good"}, "a preference needs chosen and rejected; this row has prompt, chosen"),
        ({"prompt": "q", "chosen": "a", "rejected": "a"}, "chosen and rejected are the same"),
        ({"chosen": "good", "rejected": "bad"}, "chosen must be an answer of the assistant to a prompt that both have"),
        ({"chosen": [USER], "rejected": [USER, BAD]}, "must be an answer of the assistant"),
        (
            {"prompt": "q", "question": "q", "chosen": "a", "rejected": "b"},
            "prompt and question both say what is asked",
        ),
        ({"prompt": "q", "chosen": 3, "rejected": "b"}, "chosen must be text or messages, not int"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "image": "x"}, "image is not read in such a row"),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "weight": 2}, "weight is not read in such a row"),
    ],
)
def test_a_bad_preference_is_refused_with_the_reason(row: object, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        preference_from_row(row, "f:1")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion_a": "good", "completion_b": "bad", "label": "B", "by": "me"},
        {
            "comparison": {"prompt_conversation": [USER], "completion_A": [GOOD], "completion_B": [BAD]},
            "label": "b",
            "by": "me",
        },
    ],
)
def test_a_comparison_says_which_is_better(row: dict[str, Any]) -> None:
    comparison = comparison_from_row(row, "f:1")
    assert (comparison.prompt, comparison.completion_a, comparison.completion_b) == ([USER], [GOOD], [BAD])
    assert (comparison.label, comparison.extra) == ("B", {"by": "me"})


def test_a_bad_comparison_is_refused_with_the_reason() -> None:
    whole = {"prompt": "q", "completion_a": "a", "completion_b": "b", "label": "Tie"}
    assert comparison_from_row(whole, "f:1").label == "Tie"
    for change, reason in (
        ({"label": "C"}, "label must be A, B or Tie, not 'C'"),
        ({"label": None}, "label must be A, B or Tie, not None"),
        ({"completion_b": ""}, "completion_b is empty; a comparison needs two answers"),
        ({"prompt": None}, "a comparison needs a prompt"),
    ):
        with pytest.raises(InputError, match=f"f:1: {reason}"):
            comparison_from_row({**whole, **change}, "f:1")


def test_a_prompt_may_have_an_answer() -> None:
    assert prompt_from_row({"question": "q", "answer": 4}, "f:1").answer == "4"
    assert prompt_from_row({"messages": [SYSTEM, USER], "id": 3}, "f:1").prompt == [SYSTEM, USER]
    for row, reason in (
        ({"text": "q"}, "a prompt needs prompt, .* or messages; this row has text"),
        ({"messages": [USER, GOOD]}, "the prompt ends with an answer of the assistant"),
        ({"prompt": "q", "answer": ["a"]}, "answer must be text or a number, not list"),
    ):
        with pytest.raises(InputError, match=reason):
            prompt_from_row(row, "f:1")


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (preference_from_row, {"prompt": [SEEN], "chosen": "a", "rejected": "b"}),
        (preference_from_row, {"chosen": [SEEN, GOOD], "rejected": [SEEN, BAD]}),
        (comparison_from_row, {"prompt": SEEN, "completion_a": "a", "completion_b": "b", "label": "A"}),
        (labeled_from_row, {"messages": [SEEN, GOOD], "label": True}),
        (prompt_from_row, {"messages": [SEEN]}),
        (question_from_row, {"messages": [SEEN, GOOD]}),
        (question_from_row, {"conversations": [SEEN, GOOD]}),
        (prompt_from_row, {"prompt": "q", "image": "a.png"}),
    ],
)
def test_images_are_refused_by_row(read: Any, row: dict[str, Any]) -> None:
    """Catches an image that is found when sequences are built, by an error that names no row and no way out."""
    with pytest.raises(InputError, match=r"^f:3: .*image.*trained on by supervised alone: say in words"):
        read(row, "f:3")


def test_bad_rows_of_a_source_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("prompt,chosen,rejected\nq,good,bad\nq,same,same\nq,,bad\n")
    with pytest.raises(BadRowsError) as caught:
        read_preferences(path)
    assert [reason.partition(": ")[0] for reason in caught.value.reasons] == [f"{path} row 2", f"{path} row 3"]
    path.write_text("prompt,chosen,rejected\n")
    with pytest.raises(InputError, match="holds no comparisons; it needs at least one row"):
        read_comparisons(path)


def test_turns_of_other_tools_are_a_prompt() -> None:
    """Catches a prompt that is left out where it is called `conversations`, as ShareGPT files do."""
    row = {
        "conversations": [{"from": "human", "value": "Which?"}],
        "chosen": {"from": "gpt", "value": "this"},
        "rejected": {"from": "gpt", "value": "that"},
    }
    pair = preference_from_row(row, "row 1")
    assert pair.prompt == [{"role": "user", "content": "Which?"}]
    assert (pair.chosen, pair.rejected) == (
        [{"role": "assistant", "content": "this"}],
        [{"role": "assistant", "content": "that"}],
    )
