"""Chats as programs written for vLLM's server ask for them, by OpenAI's own client, with their edges."""

import json
import re
from typing import Any

import jsonschema
import openai
import pytest
from tests.server.endpoint.conftest import MODEL

from cookhouse.models.tokenizers import get_tokenizer

MESSAGES: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}]
ADDRESS = r"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
LANGUAGES = ["Python", "Java", "Rust"]
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "skills": {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "skills"],
    "additionalProperties": False,
}


def _ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, "max_tokens": 5} | fields)


def test_no_logprobs_where_none_are_asked_for(client: openai.OpenAI) -> None:
    assert _ask(client, logprobs=False).choices[0].logprobs is None


@pytest.mark.parametrize("num", [0, 5, 20])
def test_as_many_candidates_as_are_asked_for(client: openai.OpenAI, num: int) -> None:
    content = _ask(client, logprobs=True, top_logprobs=num).choices[0].logprobs.content
    assert [len(entry.top_logprobs) for entry in content] == [num] * len(content)
    assert content


@pytest.mark.parametrize("is_streamed", [False, True])
def test_too_many_candidates_are_refused_and_the_next_is_answered(client: openai.OpenAI, is_streamed: bool) -> None:
    with pytest.raises(openai.BadRequestError):
        _ask(client, logprobs=True, top_logprobs=21, stream=is_streamed)
    assert _ask(client).choices[0].message.content


@pytest.mark.parametrize("num", [None, 0, 1, 2])
def test_a_conversation_is_scored(client: openai.OpenAI, num: int | None) -> None:
    answer = _ask(client, **{} if num is None else {"extra_body": {"prompt_logprobs": num}})
    assert (num is not None) == hasattr(answer, "prompt_logprobs")
    if num is not None:
        first, *places = answer.prompt_logprobs
        assert first is None
        assert len(places) == answer.usage.prompt_tokens - 1
        assert {len(place) for place in places} <= {max(num, 1), num + 1}


def test_a_negative_number_of_scores_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt_logprobs"):
        _ask(client, extra_body={"prompt_logprobs": -1})


def test_a_session_goes_on_with_its_answer(client: openai.OpenAI) -> None:
    first = _ask(client, max_completion_tokens=5, max_tokens=None, logprobs=True, top_logprobs=5)
    (choice,) = first.choices
    assert first.id
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    assert first.usage.completion_tokens == 5
    assert first.usage.total_tokens == first.usage.prompt_tokens + 5
    turns = [*MESSAGES, choice.message, {"role": "user", "content": "As JSON?"}]
    second = _ask(client, messages=turns)
    assert second.choices[0].message.content
    assert second.usage.prompt_tokens > first.usage.total_tokens


def test_a_stream_is_by_the_assistant_and_ends_once(client: openai.OpenAI) -> None:
    chunks = list(_ask(client, max_tokens=10, temperature=0.0, stream=True))
    whole = _ask(client, max_tokens=10, temperature=0.0).choices[0]
    assert {chunk.choices[0].delta.role for chunk in chunks} - {None} == {"assistant"}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.message.content


def test_usage_grows_by_what_was_sampled(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    stream = _ask(client, max_tokens=10, stream=True, stream_options=options, extra_body={"min_tokens": 10})
    counts = [chunk.usage.completion_tokens for chunk in stream]
    assert counts == sorted(counts)
    assert counts[-1] == 10


def test_one_of_some_choices_is_said_and_scored(client: openai.OpenAI) -> None:
    """Would catch minus infinity, which JSON cannot say, among candidates that the form forbids."""
    form = {"structured_outputs": {"choice": LANGUAGES}}
    said = set()
    for seed in range(8):
        (choice,) = _ask(
            client, max_tokens=10, temperature=1.0, seed=seed, logprobs=True, top_logprobs=5, extra_body=form
        ).choices
        said.add(choice.message.content)
        entries = choice.logprobs.content
        assert all(one.logprob >= -9999.0 for entry in entries for one in entry.top_logprobs)
    assert said <= {*LANGUAGES}
    assert len(said) > 1


def test_an_object_of_a_schema_differs_by_its_seed(client: openai.OpenAI) -> None:
    people = []
    for seed in (1, 2):
        answer = _ask(client, seed=seed, max_tokens=300, extra_body={"structured_outputs": {"json": PERSON}})
        people.append(json.loads(answer.choices[0].message.content))
        jsonschema.validate(people[-1], PERSON)
    assert people[0] != people[1]


def test_a_text_of_a_regular_expression_differs_by_its_seed(client: openai.OpenAI) -> None:
    form = {"structured_outputs": {"regex": ADDRESS}}
    texts = [_ask(client, seed=seed, max_tokens=40, extra_body=form).choices[0].message.content for seed in (1, 2)]
    assert all(re.fullmatch(ADDRESS, text) for text in texts)
    assert texts[0] != texts[1]


def test_a_form_of_the_wrong_type_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"structured_outputs\.regex"):
        _ask(client, extra_body={"structured_outputs": {"regex": {"1": "Python"}}})


def test_every_kind_of_response_format(client: openai.OpenAI) -> None:
    text = _ask(client, response_format={"type": "text"}).choices[0].message.content
    schema = {"type": "object", "properties": {"result": {"enum": [2]}}, "required": ["result"]}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema | {"additionalProperties": False}}}
    (held,) = _ask(client, response_format=form, max_tokens=30).choices
    assert text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    assert json.loads(held.message.content) == {"result": 2}


def test_fields_of_a_message_that_nobody_knows_change_nothing(client: openai.OpenAI) -> None:
    asked: Any = {"role": "user", "content": "What is 1 + 1?"}
    extra, parts = asked | {"extra_field": "0"}, asked | {"content": [{"type": "text", "text": asked["content"]}]}
    texts = [
        _ask(client, messages=[message], temperature=0.0).choices[0].message.content
        for message in (asked, extra, parts)
    ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("content", ["What is 1 + 1?", [{"type": "text", "text": "What is 1 + 1?"}]])
def test_a_role_that_no_renderer_writes_is_refused(client: openai.OpenAI, content: Any) -> None:
    """A chat template is given any role by vLLM; a renderer knows its own."""
    with pytest.raises(openai.BadRequestError, match="unknown role"):
        _ask(client, messages=[{"role": "critic", "content": content}])


def test_a_seed_has_64_bits(client: openai.OpenAI) -> None:
    """OpenAI's are signed; other programs send the upper half as well."""
    for seed in (-(2**63) - 1, 2**64):
        with pytest.raises(openai.BadRequestError, match="seed"):
            _ask(client, seed=seed)
    assert _ask(client, seed=2**63).choices


@pytest.mark.parametrize("num", [1, 2, 3])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_each_of_n_choices_has_its_place_and_its_text(client: openai.OpenAI, num: int, is_streamed: bool) -> None:
    answer = _ask(client, n=num, seed=42, max_tokens=15, temperature=0.8, stream=is_streamed)
    texts = [""] * num
    for chunk in answer if is_streamed else [answer]:
        for choice in chunk.choices:
            texts[choice.index] += (choice.delta if is_streamed else choice.message).content or ""
    assert len({*texts}) == num
    assert all(texts)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_goes_on_may_begin_with_what_was_said(client: openai.OpenAI, is_streamed: bool) -> None:
    """Would catch the text said twice, or an answer to it in place of more of it."""
    begun = "One snowy day Maria"
    asked: Any = {"temperature": 0.0, "messages": [*MESSAGES, {"role": "assistant", "content": begun}]}
    texts = []
    for echo in (False, True):
        extra = {"echo": echo, "continue_final_message": True, "add_generation_prompt": False}
        answer = _ask(client, **asked, extra_body=extra, stream=is_streamed)
        if is_streamed:
            texts.append("".join(chunk.choices[0].delta.content or "" for chunk in answer))
        else:
            texts.append(answer.choices[0].message.content)
    assert texts == [texts[0], begun + texts[0]]
    assert texts[0]


def test_a_bias_of_a_token_that_the_model_has_is_taken(client: openai.OpenAI) -> None:
    assert _ask(client, logit_bias={"2047": 1.0}).choices[0].message.content
    with pytest.raises(openai.BadRequestError, match=r"token 2049; the model has tokens below 2048"):
        _ask(client, logit_bias={"2049": 1.0})


@pytest.mark.parametrize("is_streamed", [False, True])
def test_ids_of_a_conversation_come_once_and_those_of_its_answer_whole(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    turns: Any = [{"role": "user", "content": "I love cats 🐱"}]
    answer = _ask(client, messages=turns, max_tokens=20, stream=is_streamed, extra_body={"return_token_ids": True})
    chunks = list(answer) if is_streamed else [answer]
    (prompt,) = [chunk.prompt_token_ids for chunk in chunks if hasattr(chunk, "prompt_token_ids")]
    sampled = [token for chunk in chunks for choice in chunk.choices for token in choice.token_ids]
    assert hasattr(chunks[0], "prompt_token_ids")
    assert "I love cats 🐱" in get_tokenizer(MODEL).decode(prompt)
    assert 0 < len(sampled) <= 20
    plain = _ask(client, messages=turns)
    assert not hasattr(plain, "prompt_token_ids")
    assert not hasattr(plain.choices[0], "token_ids")
