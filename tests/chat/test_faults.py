"""Faults that renderers of other libraries have had, and ours are not to have."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.chat.forms import EVERY_RENDERER, PLAIN_TEXT, every_tokenizer, features_of, make_renderer

from cookhouse.chat import Message, Renderer, Termination, TrainOnWhat, text_of
from cookhouse.data import datum_from_example

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
MARKED = [name for name in EVERY_RENDERER if name not in PLAIN_TEXT]
THINKING = [name for name in EVERY_RENDERER if "thinking" in features_of(name)]
WITH_BLOCKS = [name for name in THINKING if not name.startswith("gpt_oss")]
KEEP_THINKING = ("qwen3 keep_thinking", "qwen3_5_preserve_thinking")
ANSWERED: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Yes."}]


@pytest.fixture
def renderer(request: pytest.FixtureRequest) -> Renderer:
    return make_renderer(request.param, every_tokenizer())


def with_renderer(names: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("renderer", names, indirect=True)


def trained_text(renderer: Renderer, messages: list[Message]) -> str:
    examples = renderer.build_supervised_examples(messages, ALL)
    trained = [t for tokens, weights in examples for t, w in zip(tokens.to_ints(), weights, strict=True) if w]
    return renderer.encoder.decode(trained)


def saying_it_did_not_think(answer: str) -> list[Message]:
    parts: Any = [{"type": "thinking", "thinking": ""}, {"type": "text", "text": answer}]
    return [ANSWERED[0], {"role": "assistant", "content": parts}]


@with_renderer(MARKED)
def test_data_without_thinking_teaches_no_think_block(renderer: Renderer) -> None:
    # It would teach a thinking model to stop thinking, and one that does not think to write empty blocks.
    assert trained_text(renderer, ANSWERED).removeprefix("<|channel|>final<|message|>").startswith("Yes.")
    assert "think>" not in trained_text(renderer, ANSWERED)


@with_renderer(WITH_BLOCKS)
def test_an_empty_think_block_is_taught_where_it_is_asked_for(renderer: Renderer) -> None:
    assert "</think>" in trained_text(renderer, saying_it_did_not_think("Yes."))
    as_text: list[Message] = [ANSWERED[0], {"role": "assistant", "content": "<think></think>Yes."}]
    assert trained_text(renderer, as_text) == trained_text(renderer, saying_it_did_not_think("Yes."))


@with_renderer([name for name in THINKING if name not in KEEP_THINKING])
def test_thinking_inside_a_string_leaves_history(renderer: Renderer) -> None:
    said: Message = {"role": "assistant", "content": "<think>secret</think>Yes."}
    history = [ANSWERED[0], said, {"role": "user", "content": "And?"}]
    prompt = renderer.encoder.decode(renderer.build_generation_prompt(history).to_ints())  # type: ignore[arg-type]
    assert "secret" not in prompt
    assert "Yes." in prompt


@with_renderer(MARKED)
def test_an_end_token_that_comes_twice_is_malformed_and_no_text(renderer: Renderer) -> None:
    response = renderer.build_response(ANSWERED)
    for doubled in ([*response, response[-1]], [*response, *response]):
        message, termination = renderer.parse_response(doubled)
        assert termination == Termination.MALFORMED
        assert text_of(message) == "Yes."


@with_renderer([name for name in EVERY_RENDERER if name not in PLAIN_TEXT])
def test_thinking_inside_an_expected_answer_is_read_apart(renderer: Renderer) -> None:
    """Catches an answer that is parsed, compared with one that is not."""
    said: Message = {"role": "assistant", "content": "<think>secret</think>\nYes."}
    assert text_of(renderer.read_back([ANSWERED[0], said])).strip() == "Yes."


@with_renderer(PLAIN_TEXT)
def test_an_expected_answer_that_a_format_cannot_end_stays_whole(renderer: Renderer) -> None:
    """Catches an answer that is cut where the format would end it."""
    content = "One.\n\nUser: two.\n"
    assert renderer.read_back([ANSWERED[0], {"role": "assistant", "content": content}])["content"] == content


@with_renderer([name for name in EVERY_RENDERER if "tools" in features_of(name)])
@pytest.mark.parametrize("value", ["[" * 2000 + "]" * 2000, "[" * 200 + "]" * 200, "NaN", "9" * 5000])
def test_arguments_that_no_tool_can_take_are_read_as_no_call(renderer: Renderer, value: str) -> None:
    """Catches an exception that a model's answer raises, which ends a run."""
    call: Any = {"type": "function", "id": "functions.f:0", "function": {"name": "f", "arguments": {"x": [0]}}}
    messages: list[Message] = [ANSWERED[0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    text = renderer.encoder.decode(renderer.build_response(messages))
    message, _ = renderer.parse_response(renderer.encoder.encode_with_specials(text.replace("[0]", value)))
    calls = message.get("tool_calls", [])
    assert not calls or calls == [{**calls[0], "function": {"name": "f", "arguments": {"x": value}}}]


@with_renderer(EVERY_RENDERER)
def test_trained_tokens_are_counted_not_added_up(renderer: Renderer) -> None:
    # Weights that sum to 1 give one "token" for each example, however long.
    tokens, weights = renderer.build_supervised_example(ANSWERED, ALL)
    datum = datum_from_example(tokens, weights, None, "mean")
    reduced = datum.loss_fn_inputs["weights"].to_numpy()
    assert abs(float(reduced.sum()) - 1.0) < 1e-6
    assert int((reduced > 0).sum()) == int(sum(weights)) > 1
