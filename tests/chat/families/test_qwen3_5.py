"""Qwen3.5: calls as XML, and a prompt that opens the think block."""

from pathlib import Path
from typing import Any

import pytest
from tests.chat.families.conversations import make_conversations

from cookhouse.chat import Message, Termination, ToolCall, TrainOnWhat, get_renderer, with_tools
from cookhouse.errors import InputError
from cookhouse.models.tokenizers import get_tokenizer

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
ASKED: Message = {"role": "user", "content": "Weather?"}


@pytest.fixture(scope="module")
def tokenizer(shared: Path) -> Any:
    return get_tokenizer(str(shared / "tokenizers/qwen3_5"))


def call(name: str, **arguments: Any) -> ToolCall:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def thinking(reasoning: str, text: str) -> Any:
    return [{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": text}]


TURN: list[Message] = [
    ASKED,
    {"role": "assistant", "content": thinking("Call.", "On it."), "tool_calls": [call("weather", city="Oslo", days=2)]},
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": thinking("So.", "Rain.")},
]
CALLED = (
    "Call.\n</think>\n\nOn it.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call><|im_end|>"
)


def trained(renderer: Any, messages: list[Message], mode: TrainOnWhat = ALL) -> list[str]:
    return [
        renderer.encoder.decode([t for t, w in zip(tokens.to_ints(), weights, strict=True) if w])
        for tokens, weights in renderer.build_supervised_examples(messages, mode)
    ]


def test_what_is_trained_begins_inside_the_think_block(tokenizer: Any) -> None:
    renderer = get_renderer("qwen3_5", tokenizer)
    prompt = tokenizer.decode(renderer.build_generation_prompt([ASKED]).to_ints())
    assert prompt == "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert trained(renderer, TURN) == [f"{CALLED}So.\n</think>\n\nRain.<|im_end|>"]


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_preserve_thinking"])
def test_an_answer_without_reasoning_teaches_no_empty_block(tokenizer: Any, name: str) -> None:
    renderer = get_renderer(name, tokenizer)
    assert trained(renderer, [ASKED, {"role": "assistant", "content": "Rain."}]) == ["Rain.<|im_end|>"]
    asked_for: Message = {"role": "assistant", "content": thinking("", "Rain.")}
    assert trained(renderer, [ASKED, asked_for]) == ["\n</think>\n\nRain.<|im_end|>"]


def test_the_block_of_disable_thinking_is_in_the_prompt(tokenizer: Any) -> None:
    renderer = get_renderer("qwen3_5_disable_thinking", tokenizer)
    prompt = tokenizer.decode(renderer.build_generation_prompt([ASKED]).to_ints())
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert trained(renderer, [ASKED, {"role": "assistant", "content": "Rain."}]) == ["Rain.<|im_end|>"]
    with pytest.raises(InputError, match="trains no thinking"):
        renderer.build_supervised_examples(TURN, ALL)


def test_preserved_thinking_makes_each_prompt_extend_the_turn_before(tokenizer: Any) -> None:
    renderer = get_renderer("qwen3_5_preserve_thinking", tokenizer)
    assert renderer.has_extension_property
    for messages in make_conversations(60):
        previous: list[int] = []
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                assert renderer.build_generation_prompt(messages[:index]).to_ints()[: len(previous)] == previous
                tokens, _ = renderer.build_supervised_example(messages[: index + 1], ALL)
                previous = tokens.to_ints()


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_preserve_thinking"])
def test_thinking_calls_and_text_parse_back(tokenizer: Any, name: str) -> None:
    renderer = get_renderer(name, tokenizer)
    for index, message in enumerate(TURN):
        if message["role"] == "assistant":
            assert renderer.parse_response(renderer.build_response(TURN[: index + 1])) == (
                message,
                Termination.STOP_SEQUENCE,
            )


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("Oslo", "Oslo"),
        ("two\nlines\n", "two\nlines\n"),
        ("", ""),
        (" x ", " x "),
        ("</parameter>", "</parameter>"),
        (5, 5),
        ("5", 5),
        (1.5, 1.5),
        (True, True),
        (None, None),
        ("true", True),
        (["a", {"b": "京"}], ["a", {"b": "京"}]),
        ("NaN", "NaN"),
        ("[1", "[1"),
    ],
)
def test_an_argument_is_read_as_what_is_written_alike(tokenizer: Any, value: Any, read: Any) -> None:
    renderer = get_renderer("qwen3_5", tokenizer)
    asked: Message = {"role": "assistant", "content": "", "tool_calls": [call("f", x=value, y="z")]}
    message, termination = renderer.parse_response(renderer.build_response([ASKED, asked]))
    assert (message.get("tool_calls"), termination) == ([call("f", x=read, y="z")], Termination.STOP_SEQUENCE)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("\n<function=f>\n", "not a <function=name> block"),
        ("{}", "not a <function=name> block"),
        ("\n<function=f>\n<parameter=x>\n1\n</function>\n", "not <parameter=name> blocks alone"),
        ("\n<function=f>\nwell\n</function>\n", "not <parameter=name> blocks alone"),
    ],
)
def test_a_broken_call_is_kept_with_the_reason_and_written_again(tokenizer: Any, written: str, reason: str) -> None:
    renderer = get_renderer("qwen3_5", tokenizer)
    tokens = renderer.encoder.encode_with_specials(f"hm\n</think>\n\n<tool_call>{written}</tool_call><|im_end|>")
    message, termination = renderer.parse_response(tokens)
    [unparsed] = message["unparsed_tool_calls"]
    assert (unparsed["text"], termination) == (f"<tool_call>{written}</tool_call>", Termination.STOP_SEQUENCE)
    assert reason in unparsed["error"]
    assert renderer.build_response([ASKED, message]) == tokens


def test_arguments_as_json_text_are_taken_apart(tokenizer: Any) -> None:
    renderer = get_renderer("qwen3_5", tokenizer)

    def asked(arguments: str) -> list[Message]:
        calls: list[ToolCall] = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
        return [ASKED, {"role": "assistant", "content": "", "tool_calls": calls}]

    text = tokenizer.decode(renderer.build_supervised_example(asked('{"x": [1]}'), ALL)[0].to_ints())
    assert "<parameter=x>\n[1]\n</parameter>" in text
    with pytest.raises(InputError, match="are not JSON"):
        renderer.build_supervised_example(asked("{"), ALL)
    with pytest.raises(InputError, match="are no JSON object"):
        renderer.build_supervised_example(asked("[]"), ALL)


def test_tools_stand_before_the_system_text(tokenizer: Any) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    messages = with_tools([{"role": "system", "content": " Be brief. "}, *TURN], tools)
    text = tokenizer.decode(get_renderer("qwen3_5", tokenizer).build_generation_prompt(messages).to_ints())
    assert text.startswith("<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>\n{")
    assert "</IMPORTANT>\n\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?" in text


def test_a_later_system_message_is_refused_as_the_template_does(tokenizer: Any) -> None:
    messages: list[Message] = [ASKED, {"role": "system", "content": "x"}]
    with pytest.raises(InputError, match=r"message 2 is a system message, which Qwen3\.5 has only as the first"):
        get_renderer("qwen3_5", tokenizer).build_generation_prompt(messages)


def test_a_stream_knows_from_its_prompt_that_it_begins_in_thinking(tokenizer: Any) -> None:
    renderer = get_renderer("qwen3_5", tokenizer)
    stream = renderer.stream_response(renderer.build_generation_prompt([ASKED]))
    assert stream.feed(renderer.encoder.encode(["So it rains"])) == [{"type": "thinking", "thinking": "So it rains"}]
