"""Reasoning in the spellings that people have it in."""

from typing import Any

import pytest

from cookhouse.chat import begins_inside, is_left_open, parse_messages, split_thinking, thinking_of
from cookhouse.errors import InputError


def said(**fields: Any) -> tuple[str | None, str]:
    [message] = parse_messages([{"role": "assistant", **fields}])
    thinking, text = split_thinking(message)
    return thinking and thinking.strip(), text.strip()


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "<think>\nhm\n</think>\n\nyes"},
        {"content": "hm\n</think>\n\nyes"},
        {"content": [{"type": "text", "text": "<think>hm</think>yes"}]},
        {"content": [{"type": "text", "text": "<think>hm</think>"}, {"type": "text", "text": "yes"}]},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]},
        {"content": "yes", "reasoning_content": "hm"},
        {"content": "<think>hm</think>\nyes", "reasoning_content": "hm"},
        {"content": "hm</think>yes", "thinking": "hm"},
        {"content": "<think></think>yes", "reasoning": "hm"},
        {"content": "<think>hm</think>yes", "reasoning_content": ""},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}], "reasoning": "hm"},
    ],
)
def test_one_reasoning_in_any_spelling(fields: dict[str, Any]) -> None:
    """Would catch a stray tag in the text, and reasoning that is written twice."""
    assert said(**fields) == ("hm", "yes")


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "yes", "reasoning_content": ""},
        {"content": "<think></think>\n\nyes"},
        {"content": [{"type": "thinking", "thinking": ""}, {"type": "text", "text": "yes"}]},
    ],
)
def test_an_empty_one_says_that_there_was_none(fields: dict[str, Any]) -> None:
    assert said(**fields) == ("", "yes")


@pytest.mark.parametrize("text", ["yes", "Write <think>x</think> first.", "<think>cut short"])
def test_what_is_text_stays_text(text: str) -> None:
    assert said(content=text) == said(content=text, reasoning_content=None) == (None, text)
    [asked] = parse_messages([{"role": "user", "content": f"</think>{text}"}])
    assert split_thinking(asked) == (None, f"</think>{text}")


def test_two_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match="reasoning_content and what stands in think tags differ; keep the one"):
        said(content="<think>one</think>yes", reasoning_content="two")


def test_what_a_model_wrote_beside_its_reasoning_is_no_error() -> None:
    """Would catch a rollout that ends since the model opened a second block."""
    content = [{"type": "thinking", "thinking": "one"}, {"type": "text", "text": "<think>two</think>yes"}]
    [message] = parse_messages([{"role": "assistant", "content": content}])
    assert (thinking_of(message), message["content"]) == ("one", content)


def test_odd_openings_are_told() -> None:
    assert [begins_inside(t) for t in ("hm</think>a", "<think>hm</think>a", "a", "<think>hm")] == [True, *[False] * 3]
    assert [is_left_open(t) for t in ("<think>hm", "<think>hm</think>a", "a")] == [True, False, False]
