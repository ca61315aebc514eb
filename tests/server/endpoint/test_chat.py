"""Chat completions by OpenAI's client: equal to the SDK's samples, and the same streamed as whole."""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import openai
import pytest
import tinker
from openai.types.chat import ChatCompletionChunk
from tests.server.endpoint.conftest import MODEL
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host

from cookhouse.chat import Renderer, get_renderer
from cookhouse.models.catalog import default_renderer
from cookhouse.models.tokenizers import get_tokenizer

Scripted = Callable[..., AbstractContextManager[tuple[openai.OpenAI, ScriptedEngine]]]

FORMATS = "cookhouse.server.requests.completions.formats"
MESSAGES: Any = [{"role": "user", "content": "What is 12 plus 7?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


def _joined(chunks: Iterable[ChatCompletionChunk]) -> dict[int, dict[str, Any]]:
    """What a stream says, by choice."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            one = choices.setdefault(
                choice.index, {"content": "", "reasoning": "", "calls": [], "tokens": [], "finish": None}
            )
            one["content"] += choice.delta.content or ""
            one["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            one["calls"] += [(call.function.name, call.function.arguments) for call in choice.delta.tool_calls or []]  # type: ignore[union-attr]
            if choice.logprobs is not None:
                one["tokens"] += [(entry.token, entry.logprob) for entry in choice.logprobs.content or []]
            one["finish"] = choice.finish_reason or one["finish"]
    return choices


def _whole(answer: Any) -> dict[int, dict[str, Any]]:
    return {
        choice.index: {
            "content": choice.message.content or "",
            "reasoning": getattr(choice.message, "reasoning_content", None) or "",
            "calls": [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []],
            "tokens": [(entry.token, entry.logprob) for entry in (choice.logprobs and choice.logprobs.content) or []],
            "finish": choice.finish_reason,
        }
        for choice in answer.choices
    }


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_an_answer_is_what_the_sdk_samples_for_the_same_seed(
    host: Host, client: openai.OpenAI, temperature: float
) -> None:
    """Would catch another prompt, other stops, or settings lost on the way."""
    renderer = get_renderer(default_renderer(MODEL), get_tokenizer(MODEL))
    prompt = renderer.build_generation_prompt(MESSAGES)
    parameters = tinker.SamplingParams(
        max_tokens=40, temperature=temperature, top_p=0.9, seed=11, stop=renderer.get_stop_sequences()
    )
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as service:
        sampler = service.create_sampling_client(base_model=MODEL).result()
        sampled = sampler.sample(prompt, 3, parameters).result().sequences
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, n=3, max_tokens=40, temperature=temperature, top_p=0.9, seed=11, logprobs=True
    )
    for choice, sequence in zip(answer.choices, sampled, strict=True):
        assert choice.message.content == renderer.parse_response(sequence.tokens)[0]["content"]
        assert choice.finish_reason == sequence.stop_reason
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        count = len(choice.logprobs.content)
        assert count == len(sequence.tokens) - (sequence.stop_reason == "stop")
        assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(
            list(sequence.logprobs or [])[:count]
        )
    assert answer.model == MODEL
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(prompt.to_ints())
    assert answer.usage.completion_tokens == sum(len(sequence.tokens) for sequence in sampled)


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    settings: Any = {"model": MODEL, "messages": MESSAGES, "n": 3, "max_completion_tokens": 30, "seed": 5}
    settings |= {"logprobs": True, "top_logprobs": 2, "stop": ["the", "9"]}
    answer = client.chat.completions.create(**settings)
    chunks = list(client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
    assert _joined(chunks) == _whole(answer)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert answer.usage is not None
    assert chunks[-1].usage.total_tokens == answer.usage.total_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert len(chunks) > 15, "tokens are sent as they come"


def test_an_answer_ends_before_a_stop(client: openai.OpenAI) -> None:
    settings: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40, "temperature": 0.0}
    free = client.chat.completions.create(**settings).choices[0].message.content
    assert free
    stop = free[3:5]
    stopped = client.chat.completions.create(**settings, stop=stop).choices[0]
    assert stopped.message.content == free[: free.index(stop)]
    assert stopped.finish_reason == "stop"


def test_logprobs_name_their_candidates(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=5, temperature=0.0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert (entry.token, entry.logprob) == (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob)
        assert bytes(entry.bytes or []).decode() == entry.token


@pytest.mark.parametrize("is_streamed", [False, True])
def test_thinking_and_calls_are_told_apart(scripted: Scripted, renderer: Renderer, is_streamed: bool) -> None:
    """Would catch a call left in the text, thinking in the content, or arguments that are no JSON text."""
    message: Any = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "12 and 7 …"}, {"type": "text", "text": "I add."}],
        "tool_calls": [
            {"type": "function", "function": {"name": "add", "arguments": {"a": 12}}},
            {"type": "function", "function": {"name": "add", "arguments": {"a": 7}}},
        ],
    }
    with scripted(renderer.build_response([*MESSAGES, message])) as (client, engine):
        answer: Any = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL], stream=is_streamed)
        ids = []
        if is_streamed:
            chunks = list(answer)
            said = _joined(chunks)[0]
            ids = [c.id for chunk in chunks for one in chunk.choices for c in one.delta.tool_calls or []]
        else:
            said = _whole(answer)[0]
            ids = [call.id for call in answer.choices[0].message.tool_calls]
        prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert said["reasoning"].strip() == "12 and 7 …"
    assert said["content"].strip() == "I add."
    assert [(name, json.loads(arguments)) for name, arguments in said["calls"]] == [
        ("add", {"a": 12}),
        ("add", {"a": 7}),
    ]
    assert said["finish"] == "tool_calls"
    assert len({*ids}) == 2
    assert '"name": "add"' in prompt


def test_the_results_of_tools_are_rendered(scripted: Scripted, renderer: Renderer) -> None:
    """Would catch a conversation that the client's own objects, sent back, no longer make up."""
    call: Any = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
    }
    with scripted(renderer.build_response([*MESSAGES, call])) as (client, engine):
        first = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL]).choices[0].message
        assert first.tool_calls
        result: Any = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "19"}
        client.chat.completions.create(model=MODEL, messages=[*MESSAGES, first, result], tools=[TOOL])  # type: ignore[list-item]
        prompt = renderer.encoder.decode(engine.requests[1].prompt_T.tolist())
    assert "<tool_response>\n19\n</tool_response>" in prompt


def test_tools_that_may_not_be_called_are_not_shown(scripted: Scripted, renderer: Renderer) -> None:
    with scripted(renderer.build_response([*MESSAGES, {"role": "assistant", "content": "No."}])) as (client, engine):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[TOOL], tool_choice="none")
        assert "add" not in renderer.encoder.decode(engine.requests[0].prompt_T.tolist())


@pytest.mark.parametrize(
    ("written", "finish"),
    [
        ('<tool_call>\n{"name": 3\n</tool_call>', "stop"),
        ('I add.\n<tool_call>\n{"name": 3\n</tool_call>', "stop"),
        ('I add.\n<tool_call>\n{"name": "add", "argu', "length"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_that_nobody_can_read_is_text_with_its_marks(
    scripted: Scripted, renderer: Renderer, written: str, finish: str, is_streamed: bool
) -> None:
    """Would catch a call that is dropped, or that can no longer be told from what the model says."""
    tokens = renderer.encoder.encode_with_specials(f"{written}<|im_end|>")
    num = len(tokens) - (finish == "length")
    with scripted(tokens) as (client, _):
        answer: Any = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, tools=[TOOL], max_tokens=num, stream=is_streamed
        )
        said = (_joined(answer) if is_streamed else _whole(answer))[0]
    assert (said["content"], said["calls"], said["finish"]) == (written, [], finish)


def test_no_second_call_where_one_was_asked_for(scripted: Scripted, renderer: Renderer) -> None:
    call: Any = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    tokens = renderer.build_response([*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call, call]}])
    with scripted(tokens) as (client, _):
        for is_parallel, num in ((True, 2), (False, 1)):
            for is_streamed in (False, True):
                answer: Any = client.chat.completions.create(
                    model=MODEL, messages=MESSAGES, tools=[TOOL], parallel_tool_calls=is_parallel, stream=is_streamed
                )
                said = (_joined(answer) if is_streamed else _whole(answer))[0]
                assert (len(said["calls"]), said["finish"]) == (num, "tool_calls")


@pytest.mark.parametrize(
    ("enable_thinking", "name"), [(None, "qwen3"), (True, "qwen3"), (False, "qwen3_disable_thinking")]
)
def test_enable_thinking_chooses_a_renderer(
    scripted: Scripted, renderer: Renderer, enable_thinking: bool | None, name: str
) -> None:
    tokens = renderer.build_response([*MESSAGES, {"role": "assistant", "content": "a"}])
    with scripted(tokens) as (client, engine):
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            extra_body={"chat_template_kwargs": {"enable_thinking": enable_thinking}},
        )
    expected = get_renderer(name, get_tokenizer(MODEL)).build_generation_prompt(MESSAGES)
    assert engine.requests[0].prompt_T.tolist() == expected.to_ints()


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_a_chat_template_is_told_to_think(
    scripted: Scripted, renderer: Renderer, monkeypatch: pytest.MonkeyPatch, enable_thinking: bool
) -> None:
    monkeypatch.setattr(f"{FORMATS}.default_renderer", lambda *_, **__: "template")
    with scripted(renderer.build_response([*MESSAGES, {"role": "assistant", "content": "a"}])) as (client, engine):
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            extra_body={"chat_template_kwargs": {"enable_thinking": enable_thinking}},
        )
    prompt = renderer.encoder.decode(engine.requests[0].prompt_T.tolist())
    assert prompt.endswith("</think>\n\n") is not enable_thinking


def test_a_renderer_that_never_thinks_says_so(
    scripted: Scripted, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a setting that is dropped where the format has no other form."""
    monkeypatch.setattr(f"{FORMATS}.default_renderer", lambda *_, **__: "role_colon")
    with (
        scripted(renderer.build_response([*MESSAGES, {"role": "assistant", "content": "a"}])) as (client, _),
        pytest.raises(openai.BadRequestError, match="never thinks in the format of its renderer, role_colon") as caught,
    ):
        client.chat.completions.create(
            model=MODEL, messages=MESSAGES, extra_body={"chat_template_kwargs": {"enable_thinking": True}}
        )
    assert caught.value.param == "chat_template_kwargs.enable_thinking"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_token_ids_are_the_prompt_and_all_that_was_sampled(
    scripted: Scripted, renderer: Renderer, is_streamed: bool
) -> None:
    """Would catch tokens lost where nothing is said of them: marks, the stop, what is held back."""
    call: Any = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    answers = [
        renderer.build_response([*MESSAGES, {"role": "assistant", "content": "naïve 🙂", "tool_calls": [call]}]),
        renderer.build_response([*MESSAGES, {"role": "assistant", "content": "b"}]),
    ]
    with scripted(*answers) as (client, engine):
        answer: Any = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, n=2, stream=is_streamed, extra_body={"return_token_ids": True}
        )
        chunks = list(answer) if is_streamed else [answer]
    said: dict[int, list[int]] = {0: [], 1: []}
    for chunk in chunks:
        for choice in chunk.choices:
            said[choice.index] += choice.token_ids
    assert [said[0], said[1]] == answers
    prompts = [chunk.prompt_token_ids for chunk in chunks if hasattr(chunk, "prompt_token_ids")]
    assert prompts == [engine.requests[0].prompt_T.tolist()]


def test_characters_of_several_tokens_are_sent_whole(scripted: Scripted, renderer: Renderer) -> None:
    text = "naïve – 中文 🙂"
    tokens = renderer.build_response([*MESSAGES, {"role": "assistant", "content": text}])
    with scripted(tokens) as (client, _):
        chunks = list(
            client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, logprobs=True, seed=1)
        )
    said = _joined(chunks)[0]
    assert said["content"].strip() == text
    assert not any("�" in (chunk.choices[0].delta.content or "") for chunk in chunks)
    entries = [
        entry for chunk in chunks for entry in (chunk.choices[0].logprobs and chunk.choices[0].logprobs.content) or []
    ]
    assert b"".join(bytes(entry.bytes or []) for entry in entries).decode().endswith(text)


def test_the_renderers_stops_go_with_ones_own(scripted: Scripted, renderer: Renderer) -> None:
    with scripted(renderer.build_response([*MESSAGES, {"role": "assistant", "content": "a"}])) as (client, engine):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, stop=["\n"], seed=-1, max_tokens=3)
    request = engine.requests[0]
    assert request.stop == [*renderer.get_stop_sequences(), "\n"]
    assert (request.seed, request.max_tokens, request.temperature) == (2**64 - 1, 3, 1.0)


def test_who_develops_is_the_system(scripted: Scripted, renderer: Renderer) -> None:
    with scripted(renderer.build_response([*MESSAGES, {"role": "assistant", "content": "a"}])) as (client, engine):
        client.chat.completions.create(model=MODEL, messages=[{"role": "developer", "content": "Be brief."}, *MESSAGES])
    expected = renderer.build_generation_prompt([{"role": "system", "content": "Be brief."}, *MESSAGES])
    assert engine.requests[0].prompt_T.tolist() == expected.to_ints()
