"""Calls stay where a model wrote them: what was parsed is written as the tokens that were sampled."""

from copy import deepcopy
from functools import cache
from typing import Any, cast

import pytest
from tests.chat.forms import every_tokenizer, make_renderer

from cookhouse.chat import Message, Renderer, calls_in_order, get_renderer, is_unparsed, parse_messages, with_tool_text
from cookhouse.chat.families.qwen3 import Qwen3InstructRenderer
from cookhouse.chat.template.renderer import TemplateRenderer
from cookhouse.chat.tool_calls import write_json_call
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

ASKED: Message = {"role": "user", "content": "?"}
CALL: Any = {"type": "function", "function": {"name": "f", "arguments": {"x": [1]}}}
BAD = "<tool_call>\n{broken\n</tool_call>"
THOUGHT = "hm\n</think>\n\n"
RENDERERS = {
    "qwen3": f"<think>\n{THOUGHT}",
    "qwen3 keep_thinking": f"<think>\n{THOUGHT}",
    "qwen3_instruct": "",
    "qwen3_disable_thinking": "",
    "qwen3_vl": THOUGHT,
    "qwen3_vl_instruct": "",
    "qwen3_5": THOUGHT,
    "qwen3_5_disable_thinking": "",
    "qwen3_5_preserve_thinking": THOUGHT,
    "tool text": "",
}
"""Renderers that write calls between tags, each with the reasoning that its answers begin with."""
WRITTEN = {
    "unreadable first": "{bad}\n{good}\nThen {good}",
    "unreadable in the middle": "So:\n{good}\n{bad}\n\n{good}",
    "unreadable last": "So:\n{good}\n{bad}",
    "unreadable alone": "So: {bad}",
    "nothing between": "{bad}{good}{bad}{good}",
    "text between": "I add.\n{good}\nThen  I\n add.\n\n{good}",
    "text between alone": "{good}\nThen.\n{good}\nDone.",
    "all": "So:\n\n{good}\nThen.\n\n{bad} And {good}\n Done.",
    "never closed": "So:\n{good}\nThen.\n<tool_call>\n{{",
}


@cache
def _renderer(name: str) -> Renderer:
    if name != "tool text":
        return make_renderer(name, every_tokenizer())
    tokenizer: Any = deepcopy(get_tokenizer("cookhouse/tiny"))
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return with_tool_text(get_renderer("template", tokenizer))


def _sampled(renderer: Renderer, written: str) -> tuple[list[int], str]:
    """Tokens of a response, and its text."""
    call = renderer.write_call(CALL) if isinstance(renderer, Qwen3InstructRenderer) else write_json_call(CALL)
    text = written.format(good=f"<tool_call>{call}</tool_call>", bad=BAD)
    tokens = renderer.encoder.encode_with_specials(f"{text}<|im_end|>")
    return tokens, text


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_what_was_parsed_is_written_as_it_was_sampled(name: str, kind: str) -> None:
    """Would catch a call that moves, a text that loses its white space, and either where a message is parsed."""
    renderer = _renderer(name)
    tokens, text = _sampled(renderer, f"{RENDERERS[name]}{WRITTEN[kind]}")
    message, _ = renderer.parse_response(tokens)
    [message] = parse_messages([message])
    again = renderer._response([ASKED, message])
    assert renderer.encoder.decode(again) == f"{text}<|im_end|>"
    if name != "tool text":  # there a tag is text, which other tokens may spell
        assert again == tokens


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_stream_says_text_and_calls_in_the_order_in_which_they_were_written(name: str, kind: str, size: int) -> None:
    """Would catch text that is told before the call that it follows, however the tokens come."""
    renderer = _renderer(name)
    tokens, _ = _sampled(renderer, WRITTEN[kind])
    stream = renderer.stream_response()
    deltas = [delta for at in range(0, len(tokens), size) for delta in stream.feed(tokens[at : at + size])]
    said = "".join(_told(delta) for delta in [*deltas, *stream.finish()])
    expected = WRITTEN[kind].format(good="[f]", bad=BAD)
    assert "".join(said.split()) == "".join(expected.split())  # white space before a call comes with what follows it


def _told(delta: Any) -> str:
    return "[f]" if delta.get("type") == "function" else str(delta["text"])


def test_calls_that_end_an_answer_have_no_place() -> None:
    """Would catch framing that is shown as text."""
    renderer = _renderer("qwen3_instruct")
    message, _ = renderer.parse_response(_sampled(renderer, "So:\n{good}\n{good}\n")[0])
    assert message == {"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_template_reads_calls_where_they_were_written(kind: str) -> None:
    """Would catch an order that is lost where the format is learned from a template."""
    renderer = TemplateRenderer(get_tokenizer("cookhouse/tiny"))
    message, _ = renderer.parse_response(_sampled(renderer, WRITTEN[kind])[0])
    written, before = "", 0
    for letters, call in calls_in_order(message):
        text = cast("str", message["content"])[before:letters]
        written += f"{text}{cast('Any', call)['text'] if is_unparsed(call) else '[f]'}"
        before = letters if letters is not None else before
    assert f"{written}{cast('str', message['content'])[before:]}" == WRITTEN[kind].format(good="[f]", bad=BAD)


@pytest.mark.parametrize("place", [-1, 1.5, True, "1"])
@pytest.mark.parametrize("key", ["tool_calls", "unparsed_tool_calls"])
def test_a_place_from_outside_is_checked(key: str, place: object) -> None:
    """Would catch a value that is used to cut a text."""
    call = {**CALL, "text": "x", "error": "y", "place": place}
    with pytest.raises(InputError, match="message 1: the place of a call must be a whole number from 0 on"):
        parse_messages([{"role": "assistant", "content": "So", key: [call]}])


def test_a_place_behind_the_text_is_its_end() -> None:
    """Would catch a text that is written twice, or a call that is not."""
    renderer = _renderer("qwen3_instruct")
    calls: list[Any] = [{**CALL, "place": 10**30}, CALL, {**CALL, "place": 0}]
    written = renderer.encoder.decode(
        renderer._response([ASKED, {"role": "assistant", "content": "So", "tool_calls": calls}])
    )
    tagged = f"<tool_call>{write_json_call(CALL)}</tool_call>"
    assert written == f"{tagged}So{tagged}\n{tagged}<|im_end|>"
