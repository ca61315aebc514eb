"""The Qwen3 family, token by token against its own chat template."""

import json
from pathlib import Path
from typing import Any

import pytest

from cookhouse.chat import Message, Termination, TrainOnWhat, get_renderer, with_tools
from cookhouse.chat.families.qwen3 import Qwen3Renderer
from cookhouse.errors import InputError

ALL = TrainOnWhat.ALL_ASSISTANT_MESSAGES
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather — of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


def call(name: str, **arguments: Any) -> Any:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def thinking(reasoning: str, text: str) -> Any:
    return [{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": text}]


TOOL_DIALOG: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Kyōto and Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [call("weather", city="京都"), call("weather", city="Oslo")]},
    {"role": "tool", "content": "sun"},
    {"role": "tool", "content": '{"sky": "rain\\n"}'},
    {"role": "assistant", "content": "Let me check the time.", "tool_calls": [call("now")]},
    {"role": "tool", "content": "noon"},
    {"role": "assistant", "content": "Sun in Kyōto, rain in Oslo."},
]
THINKING_DIALOG: list[Message] = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": thinking("Add them.", "4")},
    {"role": "user", "content": "And weather?"},
    {
        "role": "assistant",
        "content": thinking("Call.\nThe tool!", "Looking."),
        "tool_calls": [call("weather", city="Oslo")],
    },
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": thinking("Rain, then.", "Rain.")},
]


def from_template(tokenizer: Any, messages: list[Message], *, prompt: bool = False, **options: Any) -> list[int]:
    """Tokens of the family's template, without the newline after the last end mark, which we do not write."""
    plain: list[dict[str, Any]] = []
    for message in messages:
        converted: dict[str, Any] = {k: v for k, v in message.items() if k != "tools"}
        if not isinstance(message["content"], str):
            reasoning, text = message["content"]
            converted |= {"content": text["text"], "reasoning_content": reasoning["thinking"]}  # type: ignore[typeddict-item]
        if message["role"] != "system" or message["content"]:  # an empty one with tools counts as none
            plain.append(converted)
    ids = tokenizer.apply_chat_template(
        plain, add_generation_prompt=prompt, tools=messages[0].get("tools"), return_dict=False, **options
    )
    return list(ids) if prompt else list(ids[:-1])


@pytest.mark.parametrize(
    "messages",
    [
        TOOL_DIALOG,
        with_tools(TOOL_DIALOG, TOOLS),
        with_tools(TOOL_DIALOG[1:], TOOLS),
        THINKING_DIALOG,
        with_tools(THINKING_DIALOG, TOOLS),
        THINKING_DIALOG[:2],
        [*TOOL_DIALOG[:2], {"role": "assistant", "content": "One\n\n  two \n"}],
        [*TOOL_DIALOG[:5], {"role": "assistant", "content": thinking("Done.", "Sun and rain.")}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>\nso\n</think>\n\nyes"}],
    ],
)
class TestAgainstTheTemplate:
    def test_qwen3(self, tokenizer: Any, messages: list[Message]) -> None:
        renderer = get_renderer("qwen3", tokenizer)
        assert renderer.build_supervised_example(messages, ALL)[0].to_ints() == from_template(tokenizer, messages)
        assert renderer.build_generation_prompt(messages[:-1]).to_ints() == from_template(
            tokenizer, messages[:-1], prompt=True
        )

    def test_qwen3_disable_thinking(self, tokenizer: Any, messages: list[Message]) -> None:
        renderer = get_renderer("qwen3_disable_thinking", tokenizer)
        assert renderer.build_generation_prompt(messages[:-1]).to_ints() == from_template(
            tokenizer, messages[:-1], prompt=True, enable_thinking=False
        )
        nothing = TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES  # else trained thinking is refused
        tokens, _ = renderer.build_supervised_example(messages, nothing)
        assert tokens.to_ints() == from_template(tokenizer, messages)

    def test_qwen3_instruct(self, tokenizer: Any, messages: list[Message]) -> None:
        # Turns before the last user message carry no think framing in this template: the 2507 instruct format.
        renderer = get_renderer("qwen3_instruct", tokenizer)
        closed: list[Message] = [*messages, {"role": "user", "content": "bye"}]
        nothing = TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES
        tokens, _ = renderer.build_supervised_example(closed, nothing)
        assert tokens.to_ints() == from_template(tokenizer, closed)

    def test_keeping_thinking_makes_each_prompt_extend_the_turn_before(
        self, tokenizer: Any, messages: list[Message]
    ) -> None:
        renderer = Qwen3Renderer(tokenizer, keep_thinking=True)
        previous: list[int] = []
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                assert renderer.build_generation_prompt(messages[:index]).to_ints()[: len(previous)] == previous
                previous = renderer.build_supervised_example(messages[: index + 1], ALL)[0].to_ints()


def test_the_qwen25_template_agrees_where_a_system_message_is_given(qwen3: Any, shared: Path) -> None:
    template = (shared / "tokenizers/qwen3/other_templates/qwen2.5.jinja").read_text()
    for messages in (TOOL_DIALOG, with_tools(TOOL_DIALOG, TOOLS)):
        tokens, _ = get_renderer("qwen3_instruct", qwen3).build_supervised_example(messages, ALL)
        assert tokens.to_ints() == from_template(qwen3, messages, chat_template=template)


def test_real_dialogs_agree_with_the_template(tokenizer: Any, dialogs: list[list[Message]]) -> None:
    qwen3, instruct = get_renderer("qwen3", tokenizer), get_renderer("qwen3_instruct", tokenizer)
    for messages in dialogs:
        if any(str(message["content"]).startswith("\n") for message in messages):
            continue  # newlines at the start are kept apart from the header's: a named difference
        assert qwen3.build_supervised_example(messages, ALL)[0].to_ints() == from_template(tokenizer, messages)
        closed: list[Message] = [*messages, {"role": "user", "content": "bye"}]
        assert instruct.build_supervised_example(closed, ALL)[0].to_ints() == from_template(tokenizer, closed)


def test_real_tool_calls_agree_with_the_template_and_parse_back(qwen3: Any, shared: Path) -> None:
    roles = {"human": "user", "gpt": "assistant", "observation": "tool", "function_call": "assistant"}
    renderer = get_renderer("qwen3_instruct", qwen3)
    num_calls = 0
    for line in (shared / "data/tool_use/glaive_toolcall_en_demo.jsonl").read_text().split("\n")[:100]:
        row = json.loads(line)
        messages: list[Message] = []
        for turn in row["conversations"]:
            if turn["from"] == "function_call":
                function = json.loads(turn["value"])
                calls = [call(function["name"], **function["arguments"])]
                messages.append({"role": "assistant", "content": "", "tool_calls": calls})
                num_calls += 1
            else:
                messages.append({"role": roles[turn["from"]], "content": turn["value"]})  # type: ignore[typeddict-item]
        messages = [*with_tools(messages, json.loads(row["tools"])), {"role": "user", "content": "bye"}]
        assert renderer.build_supervised_example(messages, ALL)[0].to_ints() == from_template(qwen3, messages)
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                tokens, weights = renderer.build_supervised_example(
                    messages[: index + 1], TrainOnWhat.LAST_ASSISTANT_MESSAGE
                )
                written = [t for t, w in zip(tokens.to_ints(), weights, strict=True) if w]
                assert renderer.parse_response(written) == (message, Termination.STOP_SEQUENCE)
    assert num_calls > 50


@pytest.mark.parametrize("messages", [TOOL_DIALOG, THINKING_DIALOG])
def test_thinking_calls_and_text_parse_back(tokenizer: Any, messages: list[Message]) -> None:
    renderer = get_renderer("qwen3", tokenizer)
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            tokens, weights = renderer.build_supervised_example(
                messages[: index + 1], TrainOnWhat.LAST_ASSISTANT_MESSAGE
            )
            written = [t for t, w in zip(tokens.to_ints(), weights, strict=True) if w]
            assert renderer.parse_response(written) == (message, Termination.STOP_SEQUENCE)


def test_turns_that_extend_each_other_share_an_example(tiny: Any) -> None:
    # Within a turn this family keeps thinking, so both steps of the tool turn are trained in one sequence.
    examples = get_renderer("qwen3", tiny).build_supervised_examples(THINKING_DIALOG, ALL)
    written = [
        tiny.decode([t for t, w in zip(tokens.to_ints(), weights, strict=True) if w]) for tokens, weights in examples
    ]
    assert written == [
        "<think>\nAdd them.\n</think>\n\n4<|im_end|>",
        "<think>\nCall.\nThe tool!\n</think>\n\nLooking.\n"
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'
        "<think>\nRain, then.\n</think>\n\nRain.<|im_end|>",
    ]


def test_the_empty_block_of_disable_thinking_is_never_trained(tiny: Any) -> None:
    renderer = get_renderer("qwen3_disable_thinking", tiny)
    for tokens, weights in renderer.build_supervised_examples(TOOL_DIALOG, ALL):
        trained = [t for t, w in zip(tokens.to_ints(), weights, strict=True) if w]
        assert renderer.encoder.id_of("<think>") in tokens.to_ints()
        assert renderer.encoder.id_of("<think>") not in trained


@pytest.mark.parametrize("name", ["qwen3_disable_thinking", "qwen3_instruct"])
def test_trained_thinking_is_refused_where_it_would_be_lost(tiny: Any, name: str) -> None:
    renderer = get_renderer(name, tiny)
    with pytest.raises(InputError, match="trains no thinking"):
        renderer.build_supervised_examples(THINKING_DIALOG, ALL)
    as_text: list[Message] = [{"role": "assistant", "content": "<think>hm</think>yes"}]
    with pytest.raises(InputError, match="trains no thinking"):
        renderer.build_supervised_example(as_text, ALL)


@pytest.mark.parametrize(
    ("text", "content", "termination"),
    [
        ("Hello<|im_end|>", "Hello", Termination.STOP_SEQUENCE),
        ("<|im_end|>", "", Termination.STOP_SEQUENCE),
        ("Hello<|im_end|><|im_end|>", "Hello", Termination.MALFORMED),
        ("Hello<|im_end|>\nmore", "Hello", Termination.MALFORMED),
        ("Hello<|endoftext|>", "Hello", Termination.EOS),
        ("Hello", "Hello", Termination.MALFORMED),
        ("", "", Termination.MALFORMED),
        ("<think>\n\n</think>\n\nHi<|im_end|>", "Hi", Termination.STOP_SEQUENCE),
        ("<think>\nhm\n</think>\n\nHi<|im_end|>", thinking("hm", "Hi"), Termination.STOP_SEQUENCE),
        ("hm\n</think>\n\nHi<|im_end|>", thinking("hm", "Hi"), Termination.STOP_SEQUENCE),
        ("<think>\nhm, let me", thinking("hm, let me", ""), Termination.MALFORMED),
        ("<think>\nhm<|im_end|>", thinking("hm", ""), Termination.MALFORMED),
    ],
)
def test_a_response_is_parsed_by_its_marks(tokenizer: Any, text: str, content: Any, termination: Termination) -> None:
    renderer = get_renderer("qwen3", tokenizer)
    tokens = renderer.encoder.encode_with_specials(text)
    assert renderer.parse_response(tokens) == ({"role": "assistant", "content": content}, termination)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("<tool_call>\n{broken\n</tool_call>", "not JSON"),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n', "not closed"),
        ('<tool_call>\n{"arguments": {}}\n</tool_call>', "not an object with a name"),
        ('<tool_call>\n{"name": "f", "arguments": "x"}\n</tool_call>', "arguments is not an object"),
        ("<tool_call>\n[1]\n</tool_call>", "not an object with a name"),
    ],
)
def test_a_broken_call_is_kept_with_the_reason_and_written_again(tiny: Any, written: str, reason: str) -> None:
    renderer = get_renderer("qwen3_instruct", tiny)
    tokens = renderer.encoder.encode_with_specials(f"Sure.\n{written}<|im_end|>")
    message, termination = renderer.parse_response(tokens)
    [unparsed] = message["unparsed_tool_calls"]
    assert termination == Termination.STOP_SEQUENCE
    assert (message["content"], unparsed["place"]) == ("Sure.\n", 6)
    assert reason in unparsed["error"]
    assert unparsed["text"] == written
    example, _ = renderer.build_supervised_example([message], ALL)
    assert example.to_ints()[-len(tokens) :] == tokens


def test_good_calls_and_text_around_a_broken_one_survive(tiny: Any) -> None:
    renderer = get_renderer("qwen3_instruct", tiny)
    good = '<tool_call>\n{"name": "f", "arguments": {"x": [1, null]}}\n</tool_call>'
    message, _ = renderer.parse_response(
        renderer.encoder.encode_with_specials(f"Two:\n{good}\n<tool_call>{{</tool_call>\n{good}\nDone.<|im_end|>")
    )
    assert message["content"] == "Two:\n\n\n\nDone."
    assert message["tool_calls"] == [{**call("f", x=[1, None]), "place": place} for place in (5, 9)]
    assert [unparsed["text"] for unparsed in message["unparsed_tool_calls"]] == ["<tool_call>{</tool_call>"]


def test_arguments_given_as_json_text_are_written_as_they_stand(tokenizer: Any) -> None:
    calls: Any = [{"type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
    messages: list[Message] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]
    tokens, _ = get_renderer("qwen3", tokenizer).build_supervised_example(messages, ALL)
    assert tokens.to_ints() == from_template(tokenizer, messages)


def test_a_tokenizer_of_another_family_is_refused(shared: Path) -> None:
    from cookhouse.models.tokenizers import get_tokenizer

    with pytest.raises(InputError, match=r"has no token '<\|im_start\|>'"):
        get_renderer("qwen3", get_tokenizer(str(shared / "tokenizers/llama3")))
