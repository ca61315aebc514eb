"""A response read while it is sampled says what it says as a whole."""

from typing import Any, Literal

import pytest
from tests.chat.forms import EVERY_RENDERER, every_tokenizer, make_renderer
from tinker import ModelInput

from cookhouse.chat import Delta, Message, Renderer, get_renderer, text_of, thinking_of

WRITTEN = [
    "Hello<|im_end|>",
    "<think>\nhm \n\n so \n</think>\n\n Hi \n\n there \n<|im_end|>",
    '<think>\nhm\n</think>\n\nOn it.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>',
    'Two\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>{</tool_call> more <|im_end|>',
    '<tool_call>\n{"name": "f"',
    "<think>\nnever closed",
    " Yes,\n\nUse it\n\nUser",
    " Yes.\n\nUser:",
    " Kyōto 京都 🏯 \n\n e\u0301 \ufffd \ufffd\ufffd. 🏴\u200d☠️<|endoftext|>",
    "a<|im_end|>b<|im_end|>",
    '{"name": "f", "parameters": {"x": [1]}}<|eot_id|>',
    '{"name": "Ada", "age": 36}<|eot_id|>',
    '{"na<|eot_id|>',
    "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "<｜tool▁calls▁begin｜>x<｜tool▁call▁begin｜>f<｜tool▁call▁end｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    "<|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
    "",
]


def streamed(renderer: Renderer, tokens: list[int], prompt: ModelInput | None = None) -> tuple[Message, list[Delta]]:
    """The message and all deltas, token by token; after each the message is that of the tokens so far."""
    stream = renderer.stream_response(prompt)
    deltas = []
    for index, token in enumerate(tokens):
        deltas += stream.feed([token])
        if prompt is None:
            assert stream.message == renderer.parse_response(tokens[: index + 1])[0]
    return stream.message, [*deltas, *stream.finish()]


def said(deltas: list[Delta], kind: str) -> str:
    return "".join(str(delta.get(kind, "")) for delta in deltas if delta.get("type") == kind)


def unplaced(message: Message, key: Literal["tool_calls", "unparsed_tool_calls"]) -> list[dict[str, Any]]:
    """Calls as deltas have them."""
    return [{name: value for name, value in call.items() if name != "place"} for call in message.get(key, [])]


@pytest.mark.parametrize("name", EVERY_RENDERER)
@pytest.mark.parametrize("written", WRITTEN)
def test_after_every_token_the_message_is_that_of_the_tokens_so_far(name: str, written: str) -> None:
    renderer = make_renderer(name, every_tokenizer())
    message, deltas = streamed(renderer, renderer.encoder.encode_with_specials(written))
    assert said(deltas, "text") == text_of(message)
    assert said(deltas, "thinking") == thinking_of(message)
    assert [delta for delta in deltas if delta.get("type") == "function"] == unplaced(message, "tool_calls")
    assert [delta for delta in deltas if "error" in delta] == unplaced(message, "unparsed_tool_calls")


def test_tokens_may_come_in_any_pieces(tiny: Any) -> None:
    renderer = get_renderer("qwen3", tiny)
    tokens = renderer.encoder.encode_with_specials(WRITTEN[2])
    whole, _ = renderer.parse_response(tokens)
    for cut in range(len(tokens) + 1):
        stream = renderer.stream_response()
        deltas = [*stream.feed(tokens[:cut]), *stream.feed(tokens[cut:]), *stream.finish()]
        assert stream.message == whole
        assert (said(deltas, "thinking"), said(deltas, "text")) == ("hm", "On it.")


def test_text_is_told_as_it_comes(tiny: Any) -> None:
    # A stream that holds everything until the end would pass the other tests.
    renderer = get_renderer("qwen3", tiny)
    stream = renderer.stream_response()
    told = [said(stream.feed([token]), "text") for token in renderer.encoder.encode(["one two three four"])]
    assert [text for text in told if text][:2] != ["one two three four"]
    assert "".join(told) == "one two three four"


def test_a_think_mark_at_the_end_of_the_prompt_is_the_responses_own(tiny: Any) -> None:
    renderer = get_renderer("qwen3", tiny)
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "?"}], prefill="<think>\n")
    tokens = renderer.encoder.encode_with_specials("hm, so\n</think>\n\nYes.<|im_end|>")
    message, deltas = streamed(renderer, tokens, prompt)
    assert message == renderer.parse_response(tokens)[0]
    assert (said(deltas, "thinking"), said(deltas, "text")) == ("hm, so", "Yes.")
    # Without the prompt it is known to be thinking only when it is over.
    _, deltas = streamed(renderer, tokens)
    assert (said(deltas, "thinking"), said(deltas, "text")) == ("", "hm, soYes.")


def test_a_prompt_that_opens_nothing_changes_nothing(tiny: Any) -> None:
    renderer = get_renderer("qwen3_disable_thinking", tiny)
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "?"}])
    tokens = renderer.encoder.encode_with_specials("Yes.<|im_end|>")
    message, deltas = streamed(renderer, tokens, prompt)
    assert message == {"role": "assistant", "content": "Yes."}
    assert (said(deltas, "thinking"), said(deltas, "text")) == ("", "Yes.")
