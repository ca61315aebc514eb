"""What is trained on without a word is counted and told."""

from typing import Any

from cookhouse.chat import TrainOnWhat
from cookhouse.data import conversation_remarks
from cookhouse.data.rows.pairs import preference_from_row
from cookhouse.data.rows.remarks import pair_remarks
from cookhouse.data.rows.shapes import Conversation, conversation_from_row

USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
EMPTY = {"role": "assistant", "content": " \n"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}


def read(*rows: dict[str, Any]) -> list[Conversation]:
    return [conversation_from_row(row, f"f:{number}") for number, row in enumerate(rows, start=1)]


def test_empty_answers_and_last_questions_are_counted_with_the_first_of_each() -> None:
    rows = read(
        {"prompt": "q", "completion": "a"},
        {"prompt": "q", "completion": ""},
        {"messages": [USER, EMPTY, USER]},
        {"messages": [USER]},
        {"text": "Once."},
    )
    assert conversation_remarks(rows, TrainOnWhat.ALL_ASSISTANT_MESSAGES) == [
        "2 of 5 conversations have an empty answer, of which the end alone is trained on; the first is f:2",
        "2 of 5 conversations end with a message of the user, which is not trained on; the first is f:3",
        "1 of 5 conversations are plain text, trained on as it stands, without the chat format; the first is f:5",
    ]


def test_what_is_not_trained_on_or_says_something_is_not_told() -> None:
    """Would catch a call of a tool, or reasoning, that counts as an empty answer."""
    rows = read(
        {"messages": [USER, EMPTY, USER, ANSWER]},
        {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]},
        {"messages": [USER, {"role": "assistant", "content": "", "reasoning": "hm"}]},
    )
    assert conversation_remarks(rows, TrainOnWhat.LAST_ASSISTANT_MESSAGE) == []
    assert conversation_remarks(read({"messages": [USER]}), TrainOnWhat.ALL_MESSAGES) == []
    # A conversation that cannot say what is trained of it is a bad row, which is told elsewhere.
    assert conversation_remarks(rows[:1], TrainOnWhat.CUSTOMIZED) == []


def test_an_empty_turn_in_a_pair_is_told() -> None:
    rows = [
        preference_from_row({"prompt": "q", "chosen": [EMPTY, USER, ANSWER], "rejected": "b"}, "f:1"),
        preference_from_row({"prompt": "q", "chosen": "a", "rejected": "b"}, "f:2"),
    ]
    assert pair_remarks(rows) == [
        "1 of 2 pairs have an answer with an empty turn, of which the end alone is trained on; the first is f:1"
    ]


def test_odd_think_tags_are_counted() -> None:
    """Would catch reasoning that is split off, or letters that are trained on, without a word."""
    inside, cut = ({"role": "assistant", "content": text} for text in ("hm</think>a", "<think>hm"))
    notes = conversation_remarks(
        read({"messages": [USER, inside]}, {"messages": [USER, cut]}), TrainOnWhat.ALL_ASSISTANT_MESSAGES
    )
    assert notes == [
        "1 of 2 conversations have an answer with </think> alone; what is before it is read as reasoning; the first is "
        "f:1",
        "1 of 2 conversations have an answer that opens <think> and never closes it, read as text; the first is f:2",
    ]
