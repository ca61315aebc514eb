"""Tools as text, for formats that have no form for them."""

from copy import deepcopy
from typing import Any

import pytest

from cookhouse.chat import Message, Renderer, ToolTextRenderer, TrainOnWhat, get_renderer, with_tool_text, with_tools
from cookhouse.chat.checks import AWKWARD, CheckOutcome, check_renderer
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
_DECLARED = with_tools([{"role": "user", "content": "2 + 3?"}], [_TOOL])
_ASKED: list[Message] = [
    *_DECLARED,
    {
        "role": "assistant",
        "content": "Wait.",
        "tool_calls": [{"type": "function", "id": "1", "function": {"name": "add", "arguments": {"x": 2}}}],
    },
    {"role": "tool", "content": "5", "tool_call_id": "1", "name": "add"},
]


@pytest.fixture(scope="module")
def plain() -> Renderer:
    """Of a model whose template is ChatML without tools."""
    tokenizer: Any = deepcopy(get_tokenizer("cookhouse/tiny"))
    tokenizer.chat_template = _TEMPLATE
    return get_renderer("template", tokenizer)


@pytest.fixture(scope="module")
def renderer(plain: Renderer) -> Renderer:
    return with_tool_text(plain)


def test_tools_calls_and_results_are_text_of_their_messages(renderer: Renderer) -> None:
    """Catches tools that the model never hears of, and results that do not go back."""
    text = renderer.encoder.decode(renderer.build_generation_prompt(_ASKED).to_ints())
    system, user, call, result, rest = text.split("<|im_start|>")[1:]
    assert system.startswith("system\n# Tools\n\n")
    assert '<tools>\n{"type": "function", "function": {"name": "add"' in system
    assert user == "user\n2 + 3?<|im_end|>\n"
    assert call == ('assistant\nWait.\n<tool_call>\n{"name": "add", "arguments": {"x": 2}}\n</tool_call><|im_end|>\n')
    assert result == "user\n<tool_response>\n5\n</tool_response><|im_end|>\n"
    assert rest == "assistant\n"


def test_every_promise_is_kept(renderer: Renderer) -> None:
    """Catches a call that is trained and not read back, and one that a stream takes back."""
    results = check_renderer(renderer, AWKWARD)
    assert [result for result in results if result.outcome is CheckOutcome.BROKEN] == []
    assert {result.conversation for result in results if result.outcome is CheckOutcome.REFUSED} == {"thinking"}


def test_calls_are_read_and_what_is_none_is_told(renderer: Renderer) -> None:
    good, bad = '<tool_call>{"name": "add", "arguments": {}}</tool_call>', "<tool_call>add(2)</tool_call>"
    message, _ = renderer.parse_response(renderer.encoder.encode_with_specials(f"So:\n{good}\n{bad}<|im_end|>"))
    assert message["content"] == "So:\n\n"
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["add"]
    assert message["unparsed_tool_calls"][0]["text"] == bad


def test_a_tag_that_may_be_coming_is_held_back(renderer: Renderer) -> None:
    """Catches half a tag that is shown as text, and a call then taken out of it."""
    stream = renderer.stream_response()
    deltas: list[Any] = [
        delta
        for token in renderer.encoder.encode_with_specials('So <b\n<tool_call>{"name": "f", "arguments": {}}')
        for delta in stream.feed([token])
    ]
    assert "".join(delta["text"] for delta in deltas if delta["type"] == "text") == "So <b"


def test_an_answer_that_spells_a_tag_is_not_trained(renderer: Renderer) -> None:
    """Catches text that would come back as a call."""
    messages: list[Message] = [*_DECLARED, {"role": "assistant", "content": "Use <tool_call>."}]
    with pytest.raises(InputError, match="the answer contains <tool_call>"):
        renderer.build_supervised_examples(messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES)


def test_a_format_that_has_tools_stays_as_it_is(plain: Renderer, renderer: Renderer) -> None:
    qwen = get_renderer("qwen3_instruct", get_tokenizer("cookhouse/tiny"))
    assert with_tool_text(qwen) is qwen
    assert with_tool_text(renderer) is renderer
    assert isinstance(renderer, ToolTextRenderer)
    assert not plain.has_tools
