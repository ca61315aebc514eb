"""What a renderer cannot write is refused in one sentence that names it."""

from pathlib import Path
from typing import Any

import pytest
from tests.chat.families.conversations import TOOLS
from tests.chat.forms import PLAIN_TEXT, every_tokenizer

from cookhouse.chat import Message, TrainOnWhat, get_renderer, supported_renderers
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
CALL: Any = {"type": "function", "id": "functions.f:0", "function": {"name": "f", "arguments": {}}}
ASKED: list[Any] = [{"role": "user", "content": "?"}]
CALLED: list[Any] = [*ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
ANSWER: Any = {"role": "assistant", "content": "Yes."}
IMAGE: Any = {"role": "user", "content": [{"type": "image", "image": "https://example.com/a.png"}]}
TEXT_ONLY = [name for name in supported_renderers() if "_vl" not in name and not name.startswith("qwen3_5")]


def refusal(name: str, messages: list[Message], mode: TrainOnWhat = ALL) -> str:
    with pytest.raises(InputError) as caught:
        get_renderer(name, every_tokenizer()).build_supervised_examples(messages, mode)
    return str(caught.value)


@pytest.mark.parametrize("name", supported_renderers())
@pytest.mark.parametrize(
    ("messages", "mode", "expected"),
    [
        ([{"role": "bot", "content": "x"}], ALL, "message 1: unknown role 'bot'"),
        ([*ASKED, {"role": "tool", "content": "3"}, ANSWER], ALL, "message 2: a tool result must follow"),
        ([*ASKED, ANSWER, {"role": "tool", "content": "3"}], ALL, "message 3: a tool result must follow"),
        ([*CALLED, *[{"role": "tool", "content": "3"}] * 2], ALL, "message 4: a tool result must follow"),
        ([*CALLED, {"role": "tool", "content": "3", "tool_call_id": "b"}], ALL, "message 3: tool_call_id 'b' is of no"),
        ([*ASKED, {**ANSWER, "trainable": True}], ALL, "message 2 carries trainable, which train_on_what=all_assis"),
        ([*ASKED, ANSWER], TrainOnWhat.CUSTOMIZED, "message 1 lacks trainable, which train_on_what=customized needs"),
        ([], ALL, "the conversation is empty"),
    ],
)
def test_a_conversation_that_is_none_is_refused(name: str, messages: Any, mode: TrainOnWhat, expected: str) -> None:
    assert refusal(name, messages, mode).startswith(expected)


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_an_image_is_refused_by_who_cannot_see(name: str) -> None:
    assert "takes no images" in refusal(name, [IMAGE, ANSWER])


@pytest.mark.parametrize("name", [name for name in supported_renderers() if name not in (*PLAIN_TEXT, "template")])
def test_a_tokenizer_of_another_family_is_refused_when_the_renderer_is_made(shared: Path, name: str) -> None:
    other = "qwen3" if name.startswith(("llama", "deepseek", "kimi", "gpt")) else "llama3"
    with pytest.raises(InputError, match=r"has no token '.*', which this renderer writes; choose .* own family"):
        get_renderer(name, get_tokenizer(str(shared / "tokenizers" / other)))


@pytest.mark.parametrize(
    ("name", "messages", "expected"),
    [
        ("llama3", [*ASKED, {**CALLED[1], "content": "Let me see."}], "writes one tool call to a message"),
        ("llama3", [*ASKED, {**CALLED[1], "tool_calls": [CALL, CALL]}], "writes one tool call to a message"),
        ("llama3", [{"role": "system", "content": "", "tools": TOOLS}, ANSWER], "declares tools in the first user"),
        ("deepseekv3", [*ASKED, {"role": "system", "content": "x"}, ANSWER], "message 2: the DeepSeek family takes"),
    ],
)
def test_what_a_family_has_no_form_for_is_refused(name: str, messages: Any, expected: str) -> None:
    assert expected in refusal(name, messages)


def test_the_first_deepseek_v3_refuses_tools_and_thinking(shared: Path) -> None:
    tokenizer = get_tokenizer(str(shared / "tokenizers/deepseek_v3"))
    with pytest.raises(InputError, match="no form for tools that can be trained on"):
        get_renderer("deepseekv3", tokenizer).build_supervised_example(CALLED, ALL)
    with pytest.raises(InputError, match="has no token '<think>'"):
        get_renderer("deepseekv3_thinking", tokenizer)
