"""What every renderer promises for any conversation, over a tokenizer that every family can write with."""

import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chat.families.conversations import make_conversation
from tests.chat.forms import EVERY_RENDERER, PLAIN_TEXT, every_tokenizer, features_of, make_renderer

from cookhouse.chat import Message, Renderer, Termination, ToolCall, TrainOnWhat, text_of, thinking_of

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
MARKS = sorted(str(token) for token in every_tokenizer().added_tokens_decoder.values())
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
MARKUP = st.lists(st.one_of(TEXT, st.sampled_from([*MARKS, "\n", " ", "User:", "{", '"name":'])), max_size=6)
SEEDS = st.integers(0, 10_000)

check = settings(max_examples=40, deadline=None, database=None, derandomize=True)


@functools.cache
def renderer_of(name: str) -> Renderer:
    return make_renderer(name, every_tokenizer())


def conversation(name: str, seed: int) -> list[Message]:
    """A conversation that the renderer can train, as its own parsing gives messages back."""
    messages = make_conversation(seed, features_of(name) - {"spaces"})
    return [_canonical(name, message) for message in messages]


def _canonical(name: str, message: Message) -> Message:
    if name in PLAIN_TEXT and message["role"] == "assistant":
        return {**message, "content": text_of(message).replace("\n", " ").replace("User:", "")}
    if name == "llama3" and message.get("tool_calls"):
        return {**message, "content": ""}
    return message


def parsed_form(name: str, message: Message) -> Message:
    """A message as parsing has it: without what its family does not write, and without an empty think block."""
    calls = message.get("tool_calls")
    if calls and not name.startswith("kimi"):
        calls = [{"type": "function", "function": call["function"]} for call in calls]
    if calls and name.startswith("qwen3_5"):  # which does not write what type an argument has
        calls = [_with_values(call) for call in calls]
    thinking, text = thinking_of(message), text_of(message)
    if name.startswith("qwen3_5"):
        thinking, text = thinking.strip(), text.strip()
    parts: Any = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": text}]
    made: Message = {"role": "assistant", "content": parts if thinking else text}
    return {**made, "tool_calls": calls} if calls else made


def _with_values(call: ToolCall) -> ToolCall:
    arguments: Any = call["function"]["arguments"]
    read = {key: json.loads(value) if value.startswith("{") else value for key, value in arguments.items()}
    return {"type": "function", "function": {"name": call["function"]["name"], "arguments": read}}


def weighted(tokens: list[int], weights: list[float]) -> list[int]:
    return [token for token, weight in zip(tokens, weights, strict=True) if weight]


def answers(messages: list[Message]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


@pytest.mark.parametrize("name", EVERY_RENDERER)
@check
@given(seed=SEEDS)
def test_an_answer_parses_back_to_its_message(name: str, seed: int) -> None:
    renderer, messages = renderer_of(name), conversation(name, seed)
    for index in answers(messages):
        message, termination = renderer.parse_response(renderer.build_response(messages[: index + 1]))
        assert termination == Termination.STOP_SEQUENCE
        assert message == parsed_form(name, messages[index])


@pytest.mark.parametrize("name", EVERY_RENDERER)
@check
@given(seed=SEEDS)
def test_a_prompt_is_the_beginning_of_the_example(name: str, seed: int) -> None:
    renderer, messages = renderer_of(name), conversation(name, seed)
    for index in answers(messages):
        prompt = renderer.build_generation_prompt(messages[:index]).to_ints()
        tokens, weights = renderer.build_supervised_example(messages[: index + 1], TrainOnWhat.LAST_ASSISTANT_MESSAGE)
        assert tokens.to_ints()[: len(prompt)] == prompt
        assert tokens.to_ints()[len(prompt) :] == renderer.build_response(messages[: index + 1])
        assert not any(weights[: len(prompt)])


@pytest.mark.parametrize("name", EVERY_RENDERER)
@pytest.mark.parametrize("role", ["system", "user", "tool"])
@check
@given(texts=MARKUP)
def test_no_text_can_become_a_mark(name: str, role: str, texts: list[str]) -> None:
    if role == "tool" and name in PLAIN_TEXT:
        return
    renderer = renderer_of(name)
    marks = {*renderer.encoder.marks.values()}

    def render(content: str) -> list[int]:
        messages = make_conversation(1, ())
        if role == "system":
            messages = [{"role": "system", "content": content}, *messages]
        elif role == "user":
            messages = [{"role": "user", "content": content}, *messages[1:]]
        else:
            call: Any = {"type": "function", "function": {"name": "f", "arguments": {}}}
            called: list[Message] = [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": content},
            ]
            messages = [*messages[:1], *called, *messages[1:]]
        return renderer.build_supervised_example(messages, ALL)[0].to_ints()

    hostile, harmless = render("x" + "".join(texts)), render("harmless")
    assert [token for token in hostile if token in marks] == [token for token in harmless if token in marks]


@pytest.mark.parametrize("name", [name for name in EVERY_RENDERER if name not in PLAIN_TEXT])
@check
@given(texts=MARKUP)
def test_an_answer_of_any_text_is_read_as_it_was_written(name: str, texts: list[str]) -> None:
    renderer = renderer_of(name)
    messages = make_conversation(1, ())
    messages[-1]["content"] = "x<think>" + "".join(texts)  # so that a closing tag is text, and ends no reasoning
    response = renderer.build_response(messages)
    message, termination = renderer.parse_response(response)
    assert termination == Termination.STOP_SEQUENCE
    assert renderer.build_response([*messages[:-1], message]) == response


@pytest.mark.parametrize("name", EVERY_RENDERER)
@check
@given(seed=SEEDS)
def test_only_what_the_model_says_has_weight(name: str, seed: int) -> None:
    # Of each answer all that is sampled, but for an empty think block that its message says nothing of.
    renderer, messages = renderer_of(name), conversation(name, seed)
    said = []
    for index in answers(messages):
        filler = renderer.encoder.encode(renderer.layout(messages[: index + 1])[-1].filler)
        response = renderer.build_response(messages[: index + 1])
        assert response[: len(filler)] == filler
        said += response[len(filler) :]
    examples = renderer.build_supervised_examples(messages, ALL)
    assert [token for tokens, weights in examples for token in weighted(tokens.to_ints(), weights)] == said


@pytest.mark.parametrize("name", [name for name in EVERY_RENDERER if renderer_of(name).has_extension_property])
@check
@given(seed=SEEDS)
def test_one_merged_example_trains_what_one_for_each_turn_does(name: str, seed: int) -> None:
    renderer, messages = renderer_of(name), conversation(name, seed)
    apart: list[int] = []
    for index in answers(messages):
        tokens, weights = renderer.build_supervised_example(messages[: index + 1], TrainOnWhat.LAST_ASSISTANT_MESSAGE)
        apart += weighted(tokens.to_ints(), weights)
    [(tokens, weights)] = renderer.build_supervised_examples(messages, ALL)
    assert weighted(tokens.to_ints(), weights) == apart


@pytest.mark.parametrize("name", EVERY_RENDERER)
def test_the_extension_property_is_what_the_renderer_says(name: str) -> None:
    renderer = renderer_of(name)
    extends = True
    for seed in range(100):
        messages, previous = conversation(name, seed), list[int]()
        for index in answers(messages):
            prompt = renderer.build_generation_prompt(messages[:index]).to_ints()
            extends = extends and prompt[: len(previous)] == previous
            previous = prompt + renderer.build_response(messages[: index + 1])
            previous = previous[: len(previous) - len(renderer.encoder.encode(renderer.end(messages[index])))]
    assert renderer.has_extension_property == extends


@pytest.mark.parametrize("name", EVERY_RENDERER)
@check
@given(seed=SEEDS)
def test_a_stream_says_what_the_whole_says_at_every_cut(name: str, seed: int) -> None:
    renderer, messages = renderer_of(name), conversation(name, seed)
    prompt = renderer.build_generation_prompt(messages[:-1])
    response = renderer.build_response(messages)
    bare, prompted = renderer.stream_response(), renderer.stream_response(prompt)
    deltas: list[Any] = []
    for cut, token in enumerate(response, start=1):
        bare.feed([token])
        deltas += prompted.feed([token])
        assert bare.message == renderer.parse_response(response[:cut])[0]
    deltas += prompted.finish()
    message, _ = renderer.parse_response(response)
    assert prompted.message == message
    assert "".join(d["thinking"] for d in deltas if d.get("type") == "thinking") == thinking_of(message)
    assert "".join(d["text"] for d in deltas if d.get("type") == "text") == text_of(message)
    assert [d for d in deltas if d.get("type") == "function"] == message.get("tool_calls", [])
