"""Conversations as other tools write them."""

from typing import Any

import pytest

from cookhouse.data.rows.shapes import conversation_from_row
from cookhouse.errors import InputError

USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [
            {"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"},
        ]},
        {"conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "a"}], "system": "s"},
        {"conversations": [SYSTEM, USER, ASSISTANT], "id": "0"},
        {"messages": None, "conversations": [SYSTEM, USER, ASSISTANT]},
        {"messages": '[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", '
         '"content": "a"}]'},
        {"messages": [{"role": "developer", "content": "s"}, USER, ASSISTANT]},
        {"instruction": "q", "input": "", "output": "a", "system": "s", "history": "[]"},
    ],
)  # fmt: skip
def test_they_are_the_same_conversation(row: dict[str, Any]) -> None:
    assert conversation_from_row(row, "f:1").messages == [SYSTEM, USER, ASSISTANT]


def test_parts_of_openai_are_ours() -> None:
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "text", "text": "!"},
    ]
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    row = {"messages": [{"role": "user", "content": content}, answer]}
    first, second = conversation_from_row(row, "f:1").messages
    assert first["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "image": "http://x/y.png"},
        {"type": "text", "text": "!"},
    ]
    assert second["content"] == [{"type": "text", "text": "a"}]


def test_calls_of_functions_and_what_came_of_them() -> None:
    turns = [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": '{"name": "look", "arguments": {"at": "x"}}'},
        {"from": "observation", "value": "nothing"},
        {"from": "gpt", "value": "a"},
    ]
    messages = conversation_from_row({"conversations": turns}, "f:1").messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": "x"}}


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"from": "humn", "value": "q"}], "message 1: unknown speaker 'humn'; did you mean human?"),
        ([{"from": "human"}], "message 1: a turn needs from and value"),
        ([{"from": "human", "value": 3}], "message 1: content must be a string or a list of parts, not a number"),
        ([{"from": "gpt", "value": "a", "weight": 0.5}], "message 1: weight must be 0, which leaves"),
        ([{"from": "function_call", "value": "look"}], "message 1: a function_call must be JSON"),
        ([{"from": "function_call", "value": '{"x": 1}'}], "message 1: a function_call must be JSON"),
        ("[{", "conversations is text but not JSON"),
        (["q"], "message 1: must be an object with role and content"),
    ],
)
def test_what_is_not_understood_is_refused(turns: object, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        conversation_from_row({"conversations": turns}, "f:1")
    assert f"f:1: {reason}" in str(caught.value)
