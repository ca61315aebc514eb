"""Rows in the shapes that people have them in."""

from typing import Any

import pytest

from cookhouse.data import conversation_from_row, conversations_from_rows
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


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([USER], "f:7: a row must be an object, not list"),
        ({}, "f:7: no messages: a row needs messages, prompt + completion"),
        ({"conversations": [], "id": 3}, "this one has conversations, id"),
        ({"prompt": "q"}, "f:7: no messages"),
        ({"messages": []}, "f:7: the conversation is empty"),
        ({"messages": None}, "f:7: messages must be a list, not nothing"),
        ({"messages": [{"role": "bot", "content": ""}]}, "f:7: message 1: unknown role 'bot'"),
        ({"prompt": 3, "completion": "a"}, "f:7: prompt must be a string, not int"),
        ({"instruction": "q", "input": [1], "output": "a"}, "f:7: input must be a string, not list"),
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
