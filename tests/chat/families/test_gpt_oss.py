"""gpt-oss: the Harmony format against `openai-harmony`, the library of those who made it."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.chat.families.conversations import make_conversation, make_conversations

from cookhouse.chat import Message, Renderer, Termination, ToolCall, TrainOnWhat, get_renderer, split_thinking, text_of
from cookhouse.chat.families.gpt_oss import EFFORTS, GptOssRenderer
from cookhouse.chat.typescript import write_namespace
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.models.tokenizers import get_tokenizer

DATE = "2025-06-28"
LAST = TrainOnWhat.LAST_ASSISTANT_MESSAGE


@pytest.fixture(scope="module")
def tokenizer(shared: Path) -> Any:
    return get_tokenizer(str(shared / "tokenizers/gpt_oss"))


@pytest.fixture(scope="module")
def harmony(shared: Path) -> Any:
    module = pytest.importorskip("openai_harmony")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(shared / "tokenizers/encodings"))
        return module.load_harmony_encoding("HarmonyGptOss")


def call(name: str, **arguments: Any) -> ToolCall:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def as_harmony_has_it(messages: Sequence[Message], effort: str | None) -> list[Any]:
    """The conversation as messages of `openai-harmony`, one for each channel."""
    import openai_harmony as h

    has_tools = any(message.get("tools") for message in messages)
    made = []
    if effort is not None:
        system = h.SystemContent.new().with_reasoning_effort(h.ReasoningEffort(effort.capitalize()))
        made.append(h.Message.from_role_and_content(h.Role.SYSTEM, system.with_conversation_start_date(DATE)))
    names: list[str] = []
    for message in messages:
        thinking, text = split_thinking(message) if message["role"] == "assistant" else (None, text_of(message))
        if message["role"] == "system" and (text or has_tools):
            developer = h.DeveloperContent.new()
            if text:  # the renderer ends it as the template does
                developer = developer.with_instructions(text if has_tools else f"{text}\n\n")
            if has_tools:
                developer = developer.with_function_tools(
                    [h.ToolDescription.new(**tool["function"]) for tool in message["tools"]]
                )
            made.append(h.Message.from_role_and_content(h.Role.DEVELOPER, developer))
        if message["role"] == "user":
            made.append(h.Message.from_role_and_content(h.Role.USER, text))
        if message["role"] == "tool":
            author = h.Author.new(h.Role.TOOL, f"functions.{names.pop(0)}")
            result = h.Message.from_author_and_content(author, text)
            made.append(result.with_channel("commentary").with_recipient("assistant"))
        if message["role"] != "assistant":
            continue
        if thinking:
            made.append(h.Message.from_role_and_content(h.Role.ASSISTANT, thinking).with_channel("analysis"))
        calls = message.get("tool_calls", [])
        if text or not calls:
            said = h.Message.from_role_and_content(h.Role.ASSISTANT, text)
            made.append(said.with_channel("commentary" if calls else "final"))
        names = [one["function"]["name"] for one in calls]
        for one in calls:
            arguments = json.dumps(one["function"]["arguments"], ensure_ascii=False)
            asked = h.Message.from_role_and_content(h.Role.ASSISTANT, arguments).with_channel("commentary")
            recipient = f"functions.{one['function']['name']}"
            made.append(asked.with_recipient(recipient).with_content_type("<|constrain|>json"))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("effort", "count"), [(None, 500), ("low", 50), ("medium", 500), ("high", 50)])
def test_every_conversation_is_written_as_the_library_writes_it(
    harmony: Any, tokenizer: Any, effort: str | None, count: int
) -> None:
    import openai_harmony as h

    renderer = GptOssRenderer(tokenizer, reasoning_effort=effort, current_date=DATE)
    num_turns = 0
    for messages in make_conversations(count):
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            num_turns += 1
            history = h.Conversation.from_messages(as_harmony_has_it(_seen(messages[:index]), effort))
            # What to drop is the renderer's to say: the library drops what stands before the first answer alone.
            keep = h.RenderConversationConfig(auto_drop_analysis=False)
            prompt = harmony.render_conversation_for_completion(history, h.Role.ASSISTANT, keep)
            assert renderer.build_generation_prompt(messages[:index]).to_ints() == prompt
            whole = h.Conversation.from_messages(as_harmony_has_it([*_seen(messages[:index]), message], effort))
            tokens, _ = renderer.build_supervised_example(
                messages[: index + 1], TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES
            )
            assert tokens.to_ints() == harmony.render_conversation_for_training(whole, keep)
    assert num_turns > 2 * count


def _seen(history: list[Message]) -> list[Message]:
    """History without the analysis of turns that are over."""
    answers = [i for i, m in enumerate(history) if m["role"] == "assistant" and not m.get("tool_calls")]
    over = answers[-1] if answers else -1
    return [
        {**m, "content": split_thinking(m)[1]} if m["role"] == "assistant" and i <= over else m
        for i, m in enumerate(history)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_library_reads_what_is_written(harmony: Any, tokenizer: Any, seed: int) -> None:
    """Catches a response that only our own parser takes for one."""
    import openai_harmony as h

    renderer = GptOssRenderer(tokenizer)
    messages = make_conversation(seed, ["thinking", "tools", "turns"])
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            tokens = renderer.build_response(messages[: index + 1])
            read = harmony.parse_messages_from_completion_tokens(tokens, h.Role.ASSISTANT)
            written = as_harmony_has_it([message], None)
            assert [(m.channel, m.recipient, m.content[0].text) for m in read] == [
                (m.channel, m.recipient, m.content[0].text) for m in written
            ]


SCHEMAS: list[dict[str, Any]] = [
    {"type": "string", "description": "Of a\ncity"},
    {"type": "string", "enum": ["c", "f"], "default": "c"},
    {"type": "string", "default": 'x "quoted"', "nullable": True},
    {"type": "integer", "default": 3, "title": "Count", "examples": ["one", "two", 3]},
    {"type": "number", "default": 1.5},
    {"type": "boolean", "default": False},
    {"type": ["string", "null"], "default": None},
    {"type": ["integer", "string"]},
    {"type": "array", "items": {"type": "string"}, "default": ["a", {"b": 1}]},
    {"type": "array"},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    {"type": "object"},
    {"type": "object", "description": "An object", "properties": {"a": {"type": "string", "description": "A"}}},
    {"type": "object", "properties": {"o": {"type": "object", "properties": {"deep": {"type": "boolean"}}}}},
    {"oneOf": [{"type": "string", "description": "a name"}, {"type": "integer", "default": 2, "nullable": True}]},
    {"description": "Which", "default": "x", "oneOf": [{"type": "string", "description": "Which"}, {"type": "object"}]},
    {"description": "Which", "oneOf": [{"type": "string", "description": "first"}, {"type": "null"}]},
    {"type": "array", "items": {"oneOf": [{"type": "string", "description": "s"}, {"type": "number", "default": 1}]}},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "string", "enum": []},
    {"$ref": "#/$defs/Thing"},
    {},
]


@pytest.mark.parametrize("seed", range(200))
def test_tools_are_declared_as_the_library_declares_them(harmony: Any, seed: int) -> None:
    import openai_harmony as h

    generator = random.Random(seed)
    functions = []
    for number in range(generator.randint(1, 3)):
        names = [f"p{i}" for i in range(generator.randint(0, 6))]
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {name: generator.choice(SCHEMAS) for name in names},
            "required": [name for name in names if generator.random() < 0.5],
        }
        if generator.random() < 0.2:
            parameters["description"] = "All of them"
        function: dict[str, Any] = {"name": f"f{number}", "description": generator.choice(["", "One.", "One\ntwo\n"])}
        functions.append({**function, "parameters": parameters} if generator.random() < 0.9 else function)
    developer = h.DeveloperContent.new().with_function_tools([h.ToolDescription.new(**f) for f in functions])
    theirs = harmony.decode(harmony.render(h.Message.from_role_and_content(h.Role.DEVELOPER, developer)))
    ours = write_namespace("functions", [{"type": "function", "function": function} for function in functions])
    assert theirs == f"<|start|>developer<|message|># Tools\n\n{ours}<|end|>"


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": ["nothing"]}, "nothing"),
        ({"type": [3]}, "any"),
        ({"type": 3}, "any"),
        ({"type": "object", "properties": {"x": 3}}, "{\nx?: any,\n}"),
        ({"type": "object", "properties": [], "required": "x"}, "{\n}"),
        ("string", "any"),
    ],
)
def test_schemas_that_are_none_are_written_as_any(schema: Any, written: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    arguments = f"(_: {written})" if isinstance(schema, dict) else "()"
    assert f"type f = {arguments} => any;" in write_namespace("functions", [tool])


TURN: list[Message] = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Call."}, {"type": "text", "text": "One moment."}],
        "tool_calls": [call("weather", city="京都")],
    },
    {"role": "tool", "content": "rain"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "So."}, {"type": "text", "text": "Rain."}]},
]


def written(renderer: Renderer, messages: list[Message]) -> str:
    tokens, _ = renderer.build_supervised_example(messages, TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES)
    return renderer.encoder.decode(tokens.to_ints())


def test_analysis_stays_until_the_turn_is_over(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    call_text = ' to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{"city": "京都"}<|call|>'
    call_turn = (
        "<|start|>user<|message|>Weather?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Call.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"
        f"<|start|>assistant{call_text}"
        "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>rain<|end|>"
    )
    last = (
        "<|start|>assistant<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>Rain."
    )
    assert written(renderer, TURN) == f"{call_turn}{last}<|return|>"
    over = written(renderer, [*TURN, {"role": "user", "content": "Thanks"}])
    assert "analysis" not in over
    assert "<|message|>One moment.<|end|>" in over
    assert over.endswith("<|channel|>final<|message|>Rain.<|end|><|start|>user<|message|>Thanks<|end|>")


def test_call_and_answer_of_a_turn_are_trained_in_one_example(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    messages: list[Message] = [*TURN, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes"}]
    examples = renderer.build_supervised_examples(messages, TrainOnWhat.ALL_ASSISTANT_MESSAGES)
    trained = [
        renderer.encoder.decode([t for t, w in zip(tokens.to_ints(), weights, strict=True) if w])
        for tokens, weights in examples
    ]
    assert [text.count("<|call|>") for text in trained] == [1, 0]
    assert [text.count("<|return|>") for text in trained] == [1, 1]
    assert trained[1] == "<|channel|>final<|message|>Yes<|return|>"


def test_the_system_message_tells_of_tools_and_is_never_trained(tokenizer: Any) -> None:
    renderer = GptOssRenderer(tokenizer, reasoning_effort="low", current_date=DATE)
    tools = [{"type": "function", "function": {"name": "now", "description": "Time"}}]
    messages: list[Message] = [{"role": "system", "content": "", "tools": tools}, *TURN]
    text = written(renderer, messages)
    assert text.startswith(
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2025-06-28\n\nReasoning: low\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message.\n"
        "Calls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n"
        "// Time\ntype now = () => any;\n\n} // namespace functions<|end|><|start|>user<|message|>Weather?<|end|>"
    )
    system, _, _ = text.partition("<|start|>developer")
    tokens, weights = renderer.build_supervised_example(messages, TrainOnWhat.ALL_MESSAGES)
    length = len(renderer.encoder.encode_with_specials(system))
    assert renderer.encoder.decode(tokens.to_ints()[:length]) == system
    assert weights[:length] == [0.0] * length
    assert "Calls to these tools" not in written(renderer, TURN)


def test_an_empty_system_message_without_tools_is_none(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    assert written(renderer, [{"role": "system", "content": ""}, *TURN]) == written(renderer, TURN)


def test_a_later_system_message_is_written_not_dropped(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    messages: list[Message] = [
        TURN[0],
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "x"},
    ]
    assert "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|>" in written(renderer, messages)


def test_a_result_is_of_the_tool_that_it_or_its_call_names(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    calls: list[ToolCall] = [{**call("weather", city="x"), "id": "a"}, {**call("now"), "id": "b"}]
    asked: Message = {"role": "assistant", "content": "", "tool_calls": calls}
    results: list[Message] = [
        {"role": "tool", "content": "1", "tool_call_id": "b"},
        {"role": "tool", "content": "2", "name": "functions.other"},
    ]
    text = written(renderer, [TURN[0], asked, *results])
    assert "<|start|>functions.now to=assistant<|channel|>commentary<|message|>1" in text
    assert "<|start|>functions.other to=assistant<|channel|>commentary<|message|>2" in text
    in_order: list[Message] = [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}]
    text = written(renderer, [TURN[0], asked, *in_order])
    assert text.index("<|start|>functions.weather") < text.index("<|start|>functions.now")


def test_a_result_that_nothing_names_is_refused(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    broken: Message = {"role": "assistant", "content": "", "unparsed_tool_calls": [{"text": "x", "error": "y"}]}
    with pytest.raises(
        InputError, match="message 3 is the result of a tool that no call before it names; give it a name"
    ):
        renderer.build_generation_prompt([TURN[0], broken, {"role": "tool", "content": "1"}])
    with pytest.raises(InputError, match="message 2: a tool result must follow"):
        renderer.build_generation_prompt([TURN[0], {"role": "tool", "content": "1", "name": "now"}])


def test_several_calls_are_history_and_not_trained(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    messages: list[Message] = [
        TURN[0],
        {"role": "assistant", "content": "", "tool_calls": [call("now"), call("weather", city="x")]},
    ]
    assert written(renderer, messages).count("<|call|>") == 2
    with pytest.raises(InputError, match=r"several tool calls.*gpt-oss makes one at a time"):
        renderer.build_supervised_example(messages, LAST)


def test_stops_are_the_ids_of_both_end_marks(tokenizer: Any) -> None:
    assert get_renderer("gpt_oss_no_sysprompt", tokenizer).get_stop_sequences() == [200002, 200012]


def test_the_day_is_the_same_every_day_unless_one_is_given(tokenizer: Any) -> None:
    """Catches data that is another on the next day, and a prompt with another day than was trained."""
    for renderer, day in [
        (get_renderer("gpt_oss_low_reasoning", tokenizer), "2025-06-28"),
        (GptOssRenderer(tokenizer, reasoning_effort="low", current_date="2026-01-31"), "2026-01-31"),
    ]:
        assert f"Current date: {day}\n" in written(renderer, TURN)


def test_an_unknown_effort_or_date_is_refused(tokenizer: Any) -> None:
    with pytest.raises(UnknownNameError, match="unknown reasoning effort 'hihg'; did you mean high"):
        GptOssRenderer(tokenizer, reasoning_effort="hihg")
    with pytest.raises(InputError, match="current_date is 'yesterday'; it must be a day as 2025-06-28"):
        GptOssRenderer(tokenizer, reasoning_effort="high", current_date="yesterday")


def answer(text: str, thinking: str = "") -> Any:
    parts = [{"type": "thinking", "thinking": thinking}] if thinking else []
    return {"role": "assistant", "content": [*parts, {"type": "text", "text": text}] if thinking else text}


@pytest.mark.parametrize(
    ("response", "message", "termination"),
    [
        ("<|channel|>final<|message|>Hi<|return|>", answer("Hi"), "stop_sequence"),
        ("<|channel|>final<|message|><|return|>", answer(""), "stop_sequence"),
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            answer("Hi", "hm"),
            "stop_sequence",
        ),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            answer("Hi", "a\nb"),
            "stop_sequence",
        ),
        (
            "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            answer("Wait.\nHi"),
            "stop_sequence",
        ),
        ("<|channel|>analysis<|message|>hm<|return|>", answer("", "hm"), "malformed"),
        ("<|channel|>analysis<|message|>hm", answer("", "hm"), "malformed"),
        ("<|channel|>final<|message|>Hi", answer("Hi"), "malformed"),
        ("<|channel|>final<|message|>Hi<|end|>", answer("Hi"), "malformed"),
        ("<|channel|>final<|message|>Hi<|call|>", answer("Hi"), "malformed"),
        ("<|channel|>final<|message|>Hi<|return|><|return|>", answer("Hi"), "malformed"),
        ("<|channel|>final<|message|>Hi<|endoftext|>", answer("Hi"), "eos"),
        ("Hi<|return|>", answer("Hi"), "stop_sequence"),
        ("<|channel|>final", answer(""), "malformed"),
        ("<|return|>", answer(""), "stop_sequence"),
        ("", answer(""), "malformed"),
        (
            ' to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"x": 1}<|call|>',
            {**answer(""), "tool_calls": [call("f", x=1)]},
            "stop_sequence",
        ),
        (
            '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": 1}<|call|>',
            {**answer(""), "tool_calls": [call("f", x=1)]},
            "stop_sequence",
        ),
        (
            "<|channel|>analysis<|message|>hm<|end|>"
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
            {**answer("", "hm"), "tool_calls": [call("f")]},
            "stop_sequence",
        ),
    ],
)
def test_a_response_is_parsed_by_its_channels(tokenizer: Any, response: str, message: Any, termination: str) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    tokens = renderer.encoder.encode_with_specials(response)
    expected = message
    if isinstance(message["content"], list) and not text_of(message):
        expected = {**message, "content": [*message["content"][:1], {"type": "text", "text": ""}]}
    assert renderer.parse_response(tokens) == (expected, Termination(termination))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<|channel|>commentary <|constrain|>json<|message|>{broken<|call|>", "not JSON"),
        ("<|channel|>commentary <|constrain|>json<|message|>[1]<|call|>", "arguments is not an object"),
        ("<|channel|>commentary <|constrain|>json<|message|>{}<|return|>", r"not closed by <\|call\|>"),
        ("<|channel|>commentary <|constrain|>json<|message|>{}", r"not closed by <\|call\|>"),
        ("", r"not closed by <\|call\|>"),
    ],
)
def test_a_broken_call_is_kept_with_the_reason_and_written_again(tokenizer: Any, body: str, reason: str) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    tokens = renderer.encoder.encode_with_specials(f" to=functions.f{body}")
    message, termination = renderer.parse_response(tokens)
    [unparsed] = message["unparsed_tool_calls"]
    with pytest.raises(InputError, match=reason):
        raise InputError(unparsed["error"])
    assert unparsed["text"] == f" to=functions.f{body}".removesuffix("<|return|>")
    assert termination == (Termination.STOP_SEQUENCE if body.endswith("<|call|>") else Termination.MALFORMED)
    if body.endswith("<|call|>"):
        assert renderer.build_response([TURN[0], message]) == tokens


def test_a_call_of_what_is_no_function_is_kept(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    response = " to=python<|channel|>analysis code<|message|>print(1)<|call|>"
    message, _ = renderer.parse_response(renderer.encoder.encode_with_specials(response))
    assert message["unparsed_tool_calls"][0]["error"] == "the call is to 'python', which is no function"


def test_arguments_given_as_json_text_are_written_as_they_stand(tokenizer: Any) -> None:
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    asked: ToolCall = {"type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert '<|message|>{"a":1}<|call|>' in written(
        renderer, [TURN[0], {"role": "assistant", "content": "", "tool_calls": [asked]}]
    )


def test_a_prefill_of_a_header_is_read_with_the_response(tokenizer: Any) -> None:
    """Catches a stream that takes reasoning for the answer, since its channel stands in the prompt."""
    renderer = get_renderer("gpt_oss_no_sysprompt", tokenizer)
    prompt = renderer.build_generation_prompt([TURN[0]], prefill="<|channel|>analysis<|message|>Let me")
    stream = renderer.stream_response(prompt)
    deltas = stream.feed(renderer.encoder.encode_with_specials(" see.<|end|><|start|>assistant"))
    assert deltas == [{"type": "thinking", "thinking": " see."}]
    plain = renderer.stream_response(renderer.build_generation_prompt([TURN[0]]))
    assert plain.message == answer("")


def test_the_registered_names_have_their_efforts(tokenizer: Any) -> None:
    make: Callable[[str], Renderer] = lambda name: get_renderer(name, tokenizer)  # noqa: E731
    for effort in EFFORTS:
        prompt = make(f"gpt_oss_{effort}_reasoning").build_generation_prompt([TURN[0]]).to_ints()
        assert f"\n\nReasoning: {effort}\n\n" in tokenizer.decode(prompt)
    assert tokenizer.decode(make("gpt_oss_no_sysprompt").build_generation_prompt([TURN[0]]).to_ints()) == (
        "<|start|>user<|message|>Weather?<|end|><|start|>assistant"
    )
