"""Answers that are asked to have a form, by OpenAI's own client against the embedded model: it is random enough that
nothing but a grammar has it say JSON.
"""

import json
from typing import Any

import jsonschema
import openai
import pytest
from tests.server.endpoint.conftest import MODEL

MESSAGES: Any = [{"role": "user", "content": "Where is it cold?"}]
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}},
    {"type": "function", "function": {"name": "time", "parameters": NOTHING}},
]
KINDS: dict[str, dict[str, Any]] = {
    "enum": {"enum": ["left", 2, None, [1], {"a": True}]},
    "const": {"const": {"b": [1, "x"], "a": None}},
    "anyOf": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 4}, {"const": 7}]},
    "nested arrays": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
        "minItems": 1,
        "maxItems": 2,
    },
    "pattern": {"type": "string", "pattern": "^[A-C]{2}-[0-9]{3}$"},
    "integer bounds": {"type": "integer", "minimum": -12, "exclusiveMaximum": 305},
    "number bounds": {
        "type": "array",
        "items": {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        "maxItems": 1,
    },
    "$defs": {
        "$defs": {"city": {"type": "string", "minLength": 1, "maxLength": 5}},
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/city"}, {"$ref": "#/$defs/city"}],
        "items": False,
        "minItems": 2,
    },
    "recursive $ref": {
        "$defs": {"tree": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}},
        "$ref": "#/$defs/tree",
    },
    "additionalProperties": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": {"enum": [1, 2]},
        "maxProperties": 2,
    },
    "optional properties": {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
        "required": ["b"],
        "additionalProperties": False,
    },
}


def _ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        **{"model": MODEL, "messages": MESSAGES, "max_tokens": 200, "seed": 3} | fields
    )


def test_an_answer_fits_its_schema_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = _ask(client, response_format=FORMAT, n=3, logprobs=True)
    for choice in whole.choices:
        jsonschema.validate(json.loads(choice.message.content), CITY)
        assert choice.finish_reason == "stop"
        # No token is added that was not drawn: the letters are those of the logprobs.
        assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
    assert len({choice.message.content for choice in whole.choices}) > 1
    said = ["", "", ""]
    for chunk in _ask(client, response_format=FORMAT, n=3, stream=True):
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == [choice.message.content for choice in whole.choices]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_fit_each_kind_of_schema(client: openai.OpenAI, kind: str) -> None:
    """Would catch a keyword that is let through unheeded; `make test-schemas` asks by 1,000 schemas of other people."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "kind", "schema": KINDS[kind]}}
    ended = [
        choice.message.content
        for choice in _ask(client, response_format=form, n=4, max_tokens=60).choices
        if choice.finish_reason == "stop"
    ]
    assert ended
    for text in ended:
        jsonschema.Draft202012Validator(KINDS[kind]).validate(json.loads(text))


def test_a_schema_that_cannot_be_followed_is_refused_before_a_stream_begins(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "no", "schema": {"type": "array", "uniqueItems": True}}}
    with pytest.raises(openai.BadRequestError) as refused:
        _ask(client, response_format=form, stream=True)
    assert 'Unimplemented keys: ["uniqueItems"]' in str(refused.value)
    assert refused.value.param == "response_format.json_schema.schema"


def test_a_schema_that_leaves_room_for_more_is_cut_by_max_tokens(client: openai.OpenAI) -> None:
    (choice,) = _ask(client, response_format=FORMAT, max_tokens=4).choices
    assert choice.finish_reason == "length"


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"guided_choice": ["left", "right"]}, {"left", "right"}),
        ({"structured_outputs": {"choice": ["left", "right"]}}, {"left", "right"}),
        ({"guided_regex": "(ab|cd)e"}, {"abe", "cde"}),
        ({"structured_outputs": {"regex": "a/b"}}, {"a/b"}),
        ({"guided_grammar": 'root ::= "x" | "y"'}, {"x", "y"}),  # GBNF
        ({"structured_outputs": {"grammar": 'start: "x" | "y"'}}, {"x", "y"}),  # Lark
        ({"guided_json": '{"const": 3}'}, {"3"}),
        ({"structured_outputs": {"json": {"enum": ["a", 1]}}}, {'"a"', "1"}),
    ],
)
def test_the_fields_of_vllm_hold_both_kinds_of_answer(
    client: openai.OpenAI, fields: dict[str, Any], answers: set[str]
) -> None:
    for choice in _ask(client, n=4, extra_body=fields).choices:
        assert choice.message.content in answers
    for text in client.completions.create(
        model=MODEL, prompt="Say it: ", n=4, max_tokens=60, seed=1, extra_body=fields
    ).choices:
        assert text.text in answers
        assert text.finish_reason == "stop"


def test_any_object_is_json(client: openai.OpenAI) -> None:
    for choice in _ask(client, n=4, response_format={"type": "json_object"}, max_tokens=300).choices:
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_that_is_required_is_made(client: openai.OpenAI, is_streamed: bool) -> None:
    called: list[str] = []
    for seed in range(3):
        fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "seed": seed, "max_tokens": 400}
        calls, reason = _calls(client, stream=is_streamed, **fields)
        if reason == "length":
            continue
        assert reason == "tool_calls"
        called += [name for name, _ in calls]
        for name, arguments in calls:
            jsonschema.validate(json.loads(arguments), CITY if name == "weather" else NOTHING)
    assert called


def _calls(client: openai.OpenAI, **fields: Any) -> tuple[list[tuple[str, str]], str]:
    answer = _ask(client, **fields)
    if not fields.get("stream"):
        (choice,) = answer.choices
        assert not choice.message.content
        found = choice.message.tool_calls or []
        return [(call.function.name, call.function.arguments) for call in found], choice.finish_reason
    calls, reason = [], ""
    for chunk in answer:
        reason = chunk.choices[0].finish_reason or reason
        calls += [(call.function.name, call.function.arguments) for call in chunk.choices[0].delta.tool_calls or []]
    return calls, reason


def test_a_tool_that_is_named_is_called_once(client: openai.OpenAI) -> None:
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for seed in range(3):
        calls, reason = _calls(client, tools=TOOLS, tool_choice=named, seed=seed)
        assert ([name for name, _ in calls], reason) == (["weather"], "tool_calls")
    allowed: Any = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    fields = {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}, "parallel_tool_calls": False}
    calls, _ = _calls(client, tools=TOOLS, max_tokens=400, **fields)
    assert {name for name, _ in calls} <= {"time"}


def test_free_text_before_a_strict_tool_stays_free(client: openai.OpenAI) -> None:
    """The same seed, with a tool that is strict and with one that is not, as long as nothing is called."""
    loose: Any = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
    texts = [_ask(client, tools=tools, max_tokens=30).choices[0].message.content for tools in (TOOLS[:1], loose)]
    assert texts[0] == texts[1]


def test_sampling_fields_reach_the_engine(client: openai.OpenAI) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "extra_body": {"return_token_ids": True}}
    (plain,) = _ask(client, **greedy).choices
    first = plain.token_ids[0]
    (banned,) = _ask(client, **greedy, logit_bias={str(first): -100}).choices
    assert banned.token_ids[0] != first
    greedy["extra_body"] |= {"stop_token_ids": [first]}
    (stopped,) = _ask(client, **greedy).choices
    assert (stopped.token_ids, stopped.finish_reason) == ([first], "stop")
    greedy["extra_body"] = {"return_token_ids": True, "ignore_eos": True}
    (endless,) = _ask(client, **greedy, logit_bias={"2022": 100, "2024": 99}).choices
    assert (endless.token_ids, endless.finish_reason) == ([2022] * 12, "length")
    penalty = {"frequency_penalty": 2.0, "presence_penalty": 2.0}
    (varied,) = _ask(client, **greedy, **penalty, logit_bias={"2022": 100}).choices
    assert varied.token_ids[:2] == [2022, 2022]  # 100 less some penalties is still most
