"""Rows in the shapes that people have them in."""

from typing import Any

import pytest

from cookhouse.data.rows import shapes
from cookhouse.data.rows.conversations import conversations_from_rows
from cookhouse.data.rows.shapes import conversation_from_row
from cookhouse.errors import InputError

USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, ASSISTANT]},
        {"prompt": "q", "completion": "a"},
        {"prompt": [USER], "completion": [ASSISTANT]},
        {"instruction": "q", "response": "a"},
        {"input": "q", "output": "a"},
        {"instruction": "q", "output": "a"},
        {"instruction": "q", "input": "", "output": "a"},
    ],
)
def test_every_shape_gives_the_same_conversation(row: dict[str, Any]) -> None:
    assert conversation_from_row(row, "here").messages == [USER, ASSISTANT]


def test_instruction_with_input_keeps_both() -> None:
    # Read as `input` + `output`, the instruction would be lost without a word.
    row = {"instruction": "Translate.", "input": "Haus", "output": "house"}
    assert conversation_from_row(row, "here").messages[0]["content"] == "Translate.\n\nHaus"


def test_other_keys_are_kept_apart() -> None:
    conversation = conversation_from_row({"messages": [USER], "skill": "sort", "id": 3}, "f:1")
    assert (conversation.extra, conversation.source) == ({"skill": "sort", "id": 3}, "f:1")


@pytest.mark.parametrize("tools", [[{"name": "f"}], '[{"name": "f"}]'])
def test_tools_of_a_row_are_declared(tools: object) -> None:
    [system, *_] = conversation_from_row({"messages": [USER, ASSISTANT], "tools": tools}, "f:1").messages
    assert system["tools"] == [{"type": "function", "function": {"name": "f"}}]


TURNS = [{"role": "user", "content": "q0"}, {"role": "assistant", "content": "a0"}]


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "q", "output": "a", "system": "s", "history": [["q0", "a0"]]},
        {"instruction": "q", "input": "", "output": "a", "system": "s", "history": TURNS},
        {"prompt": "q", "completion": "a", "system_prompt": "s", "history": [("q0", "a0")]},
        {"prompt": [*TURNS, USER], "completion": [ASSISTANT], "system": "s", "system_prompt": "s"},
        {"messages": [*TURNS, USER, ASSISTANT], "system": "s"},
        {"messages": [{"role": "system", "content": "s"}, *TURNS, USER, ASSISTANT], "system": "s"},
    ],
)
def test_a_system_message_and_history_are_read_in_every_shape(row: dict[str, Any]) -> None:
    # Catches rows trained on without what their answers follow from.
    conversation = conversation_from_row(row, "f:1")
    assert conversation.messages == [{"role": "system", "content": "s"}, *TURNS, USER, ASSISTANT]
    assert conversation.extra == {}


def test_the_context_of_an_instruction_is_read_as_its_input() -> None:
    row = {"instruction": "Who?", "context": "Ann came.", "response": "Ann", "category": "closed_qa"}
    conversation = conversation_from_row(row, "f:1")
    assert conversation.messages[0]["content"] == "Who?\n\nAnn came."
    assert conversation.extra == {"category": "closed_qa"}


FLAT = {"prompt": "q", "completion": "a"}


@pytest.mark.parametrize(
    ("shape", "more"),
    [
        *(({"messages": [USER, ASSISTANT]}, name) for name in ("history", *shapes.REFUSED)),
        *(
            (FLAT, name)
            for name in (*sorted(shapes.REFUSED.keys() - {"history"}), "instruction", "input", "output", "response")
        ),
        ({"instruction": "q", "input": "i", "output": "a"}, "context"),
        ({"instruction": "q", "output": "a"}, "prompt"),
    ],
)
def test_a_field_with_a_meaning_that_is_not_read_is_refused(shape: dict[str, Any], more: str) -> None:
    with pytest.raises(InputError, match=f"^f:1: {more} is not read beside .*; .*, or remove it from the rows$"):
        conversation_from_row({**shape, more: "x"}, "f:1")
    nothing: list[object] = [None, "", [], {}]
    for value in nothing:
        assert conversation_from_row({**shape, more: value}, "f:1").messages


def test_bad_answers_by_label_are_not_trained_on() -> None:
    with pytest.raises(InputError, match="bad answers would be trained on; keep good rows only"):
        conversation_from_row({**FLAT, "label": False}, "f:1")
    assert conversation_from_row({**FLAT, "label": "sports"}, "f:1").extra == {"label": "sports"}


@pytest.mark.parametrize(
    "extra",
    [
        {"prompt": "q", "prompt_id": "0f", "category": "Chat"},  # no_robots
        {"id": "x", "source": "flan", "dataset": "y"},  # tulu-3
        {"chosen": [USER], "rejected": [USER], "score_chosen": 1.0, "prompt": "q"},  # ultrafeedback
        {"conversation_hash": "0f", "turn": 1, "language": "en", "toxic": False, "timestamp": "now"},
    ],
)
def test_rows_as_data_sets_on_the_hub_have_them_are_read(extra: dict[str, Any]) -> None:
    conversation = conversation_from_row({"messages": [USER, ASSISTANT], **extra}, "f:1")
    assert conversation.messages == [USER, ASSISTANT]
    assert conversation.extra == extra


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([USER], "f:7: a row must be an object, not list"),
        ({}, "f:7: no messages: a row needs messages, conversations, prompt + completion"),
        ({"conversation": [USER], "id": 3}, "this one has conversation, id"),
        ({"conversations": []}, "f:7: the conversation is empty"),
        ({"chosen": [USER], "rejected": [USER]}, "f:7: the row is a preference (chosen, rejected)"),
        ({"messages": "[{"}, "f:7: messages is text but not JSON"),
        ({"prompt": "q"}, "f:7: no messages"),
        ({"messages": []}, "f:7: the conversation is empty"),
        ({"messages": None}, "f:7: messages must be a list, not nothing"),
        ({"messages": [{"role": "bot", "content": ""}]}, "f:7: message 1: unknown role 'bot'"),
        ({"prompt": 3, "completion": "a"}, "f:7: prompt must be text or messages, not int"),
        ({"instruction": "q", "input": [1], "output": "a"}, "f:7: input must be a string, not list"),
        ({"prompt": "q", "completion": "a", "history": "b"}, "f:7: history must be a list of [question, answer]"),
        ({"prompt": "q", "completion": "a", "history": [["b"]]}, "f:7: history must be a list of [question, answer]"),
        ({"prompt": "q", "completion": "a", "history": [[1, 2]]}, "both of them strings"),
        ({"prompt": "q", "completion": "a", "system": ["s"]}, "f:7: system must be a string, not list"),
        ({"prompt": "q", "completion": "a", "system": "s", "system_prompt": "t"}, "system and system_prompt differ"),
        (
            {"messages": [{"role": "system", "content": "s"}, USER, ASSISTANT], "system": "t"},
            "f:7: the first message and system differ; give one system message",
        ),
        ({"messages": [USER], "tools": "{"}, "f:7: tools is text but not JSON"),
        ({"messages": [USER], "tools": "{}"}, "f:7: tools must be a list, not dict"),
    ],
)
def test_a_bad_row_is_refused_with_its_source_and_the_reason(row: object, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        conversation_from_row(row, "f:7")
    assert reason in str(caught.value)


def test_rows_in_memory_are_counted_from_one() -> None:
    assert [c.source for c in conversations_from_rows([{"input": "q", "output": "a"}] * 2)] == ["row 1", "row 2"]
    with pytest.raises(InputError, match="row 2: no messages"):
        conversations_from_rows([{"input": "q", "output": "a"}, {}])
    with pytest.raises(InputError, match="there are no rows"):
        conversations_from_rows([])
