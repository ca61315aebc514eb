"""Checks of messages from outside."""

from typing import Any

import pytest

from cookhouse.chat import parse_messages, text_of, thinking_of, with_tools
from cookhouse.errors import InputError

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("hello", "messages must be a list, not a string"),
        ({"role": "user"}, "messages must be a list, not an object"),
        ([], "the conversation is empty"),
        (["hi"], "message 1: must be an object with role and content, not a string"),
        ([{"content": "x"}], "message 1: role must be one of system, user, assistant, tool, not nothing"),
        ([{"role": "usr", "content": "x"}], "message 1: unknown role 'usr'; did you mean user?"),
        ([{"role": "user"}], "message 1: content must be a string or a list of parts, not nothing"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": 3}], "message 2: content must be a string"),
        ([{"role": "user", "content": [{"type": "audio"}]}], 'type text, thinking or image, not "audio"'),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "text must be a string, not a number"),
        ([{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}], "a thinking part belongs on"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "tool_calls belongs on a message of role assistant"),
        ([{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}], "a tool call must look like"),
        ([{"role": "assistant", "content": "", "tool_calls": CALL}], "tool_calls must be a list, not an object"),
        ([{"role": "user", "content": "x", "trainable": 1}], "trainable must be true or false, not a number"),
        ([{"role": "assistant", "content": "x", "weight": 0.5}], "weight must be 0, which leaves the message out"),
        ([{"role": "user", "content": "x", "thinking": "y"}], "thinking belongs on a message of role assistant"),
        (
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}], "reasoning": "y"}],
            "reasoning and its thinking parts differ; keep the one that is to be trained on",
        ),
        ([{"role": "assistant", "content": "x", "thinking": True}], "thinking must be a string, not a boolean"),
        ([{"role": "user", "content": "\ud800 x"}], "half a surrogate pair (\\ud800) at 0"),
        ([{"role": "system", "content": "x", "tools": ["add"]}], "a tool must be an object"),
    ],
)
def test_a_bad_message_is_refused_with_its_place_and_the_reason(messages: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_messages(messages)
    assert reason in str(caught.value)


def test_keys_that_mean_nothing_here_are_dropped_and_known_ones_kept() -> None:
    call = {"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "x", "timestamp": 3, "trainable": False},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
    ]
    assert parse_messages(messages) == [
        {"role": "user", "content": "x", "trainable": False},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
    ]


@pytest.mark.parametrize("content", ["4", [{"type": "text", "text": "4"}]])
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_becomes_a_thinking_part_whatever_it_is_called(key: str, content: Any) -> None:
    # Catches reasoning that is left out of what is trained without a word.
    [message] = parse_messages([{"role": "assistant", "content": content, key: "2+2"}])
    assert (thinking_of(message), text_of(message)) == ("2+2", "4")
    assert parse_messages([message]) == [message]
    assert parse_messages([{"role": "assistant", "content": content, key: None}])[0]["content"] == content


def test_reasoning_given_twice_is_one_and_the_same() -> None:
    twice = {"role": "assistant", "content": "4", "reasoning": "2+2", "reasoning_content": "2+2"}
    assert thinking_of(parse_messages([twice])[0]) == "2+2"
    with pytest.raises(InputError, match="reasoning_content and thinking differ; keep the one"):
        parse_messages([{"role": "assistant", "content": "4", "reasoning_content": "2+2", "thinking": "hm"}])


@pytest.mark.parametrize(("written", "trained"), [("</think>x", "</think>x"), ("hm</think>x", "x"), ("x", "x")])
def test_a_closing_tag_beside_a_thinking_part(written: str, trained: str) -> None:
    """Would catch text that is lost since it begins with the tag, and reasoning that is trained twice."""
    thinking = {"type": "thinking", "thinking": "hm"}
    (message,) = parse_messages([{"role": "assistant", "content": [thinking, {"type": "text", "text": written}]}])
    assert message["content"] == [thinking, {"type": "text", "text": trained}]


@pytest.mark.parametrize("key", ["function_call", "reasoning_details", "refusal", "image", "images", "videos", "audio"])
def test_a_key_with_a_meaning_that_is_not_read_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=f"message 1: {key} is not read; "):
        parse_messages([{"role": "assistant", "content": "x", key: ["y"]}])
    assert parse_messages([{"role": "assistant", "content": "x", key: None}])


def test_an_image_is_refused_by_text_renderers_not_dropped() -> None:
    [message] = parse_messages([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}])
    with pytest.raises(InputError, match="takes no images"):
        text_of(message)


def test_tools_are_declared_on_the_first_system_message() -> None:
    tool = {"name": "add", "parameters": {}}
    declared = [{"type": "function", "function": tool}]
    assert with_tools([{"role": "user", "content": "x"}], [tool])[0] == {
        "role": "system",
        "content": "",
        "tools": declared,
    }
    assert with_tools([{"role": "system", "content": "s"}], [tool]) == [
        {"role": "system", "content": "s", "tools": declared}
    ]
    assert with_tools([{"role": "user", "content": "x"}], []) == [{"role": "user", "content": "x"}]
