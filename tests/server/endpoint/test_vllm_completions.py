"""Completions as programs written for vLLM's server ask for them, by OpenAI's own client, with its edges."""

from typing import Any

import openai
import pytest
from tests.server.endpoint.conftest import MODEL

from cookhouse.models.tokenizers import get_tokenizer

TEXT = "One snowy day Maria"
TOKENS = [5, 6, 7, 8, 9]


def _ask(client: openai.OpenAI, **fields: Any) -> Any:
    asked: dict[str, Any] = {"model": MODEL, "prompt": TEXT, "max_tokens": 5, "temperature": 0.0}
    return client.completions.create(**asked | fields)


@pytest.mark.parametrize("prompt", [TEXT, TOKENS])
def test_one_prompt_has_one_choice_of_the_length_asked_for(client: openai.OpenAI, prompt: Any) -> None:
    """Would catch usage that does not add up, and fields that nobody asked for."""
    answer = _ask(client, prompt=prompt)
    (choice,) = answer.choices
    num_prompt = len(prompt) if isinstance(prompt, list) else len(get_tokenizer(MODEL).encode(prompt))
    assert answer.id
    assert choice.text
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert not hasattr(choice, "prompt_logprobs")
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (num_prompt, 5, num_prompt + 5)
    assert usage.prompt_tokens_details.cached_tokens >= 0


@pytest.mark.parametrize(("asked", "least", "most"), [(0, 1, 1), (1, 1, 2), (5, 5, 6)])
def test_the_sampled_token_is_always_among_its_candidates(
    client: openai.OpenAI, asked: int, least: int, most: int
) -> None:
    """Would catch a token whose own log-probability is looked up among candidates, and missing."""
    logprobs = _ask(client, prompt=TOKENS, logprobs=asked, temperature=1.0, seed=3).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 5
    for name, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[name] == logprob
        assert least <= len(top) <= most


@pytest.mark.parametrize("asked", [0, 1])
@pytest.mark.parametrize("prompt", [TEXT, TOKENS])
def test_an_echoed_prompt_has_candidates_behind_its_first_token(client: openai.OpenAI, prompt: Any, asked: int) -> None:
    (choice,) = _ask(client, prompt=prompt, echo=True, logprobs=asked).choices
    text = get_tokenizer(MODEL).decode(prompt) if isinstance(prompt, list) else prompt
    logprobs = choice.logprobs
    assert choice.text.startswith(text)
    assert len(choice.text) > len(text)
    assert (logprobs.token_logprobs[0], logprobs.top_logprobs[0]) == (None, None)
    assert all(1 <= len(top) <= asked + 1 for top in logprobs.top_logprobs[1:])
    assert len(logprobs.tokens) == len(logprobs.text_offset) == len(logprobs.top_logprobs) > 5


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("num", [21, 30])
def test_too_many_candidates_are_refused_and_the_next_is_answered(
    client: openai.OpenAI, num: int, is_streamed: bool
) -> None:
    with pytest.raises(openai.BadRequestError):
        _ask(client, prompt=TOKENS, logprobs=num, stream=is_streamed)
    assert _ask(client, prompt=TOKENS).choices[0].text


@pytest.mark.parametrize("num", [None, 0, 1])
def test_every_prompt_of_a_batch_is_scored(client: openai.OpenAI, num: int | None) -> None:
    """Would catch scores of the first prompt given to the second."""
    fields: dict[str, Any] = {} if num is None else {"extra_body": {"prompt_logprobs": num, "return_token_ids": True}}
    choices = _ask(client, prompt=[TEXT, "Tell"], **fields).choices
    assert len(choices) == 2
    for choice in choices:
        if num is None:
            assert not hasattr(choice, "prompt_logprobs")
            continue
        assert choice.prompt_logprobs[0] is None
        places = choice.prompt_logprobs[1:]
        assert [str(token) in place for token, place in zip(choice.prompt_token_ids[1:], places, strict=True)] == [
            True
        ] * len(places)
        assert all(1 <= len(place) <= num + 1 for place in places)


def test_a_negative_number_of_scores_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt_logprobs"):
        _ask(client, extra_body={"prompt_logprobs": -1})


def test_a_stream_ends_each_choice_once(client: openai.OpenAI) -> None:
    chunks = list(_ask(client, stream=True))
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == "length"
    assert reasons[:-1] == [None] * (len(chunks) - 1)
    assert "".join(chunk.choices[0].text for chunk in chunks) == _ask(client).choices[0].text


@pytest.mark.parametrize("is_streamed", [False, True])
def test_samples_of_a_prompt_differ_and_end_when_they_do(client: openai.OpenAI, is_streamed: bool) -> None:
    """Would catch one sample that is sent n times, or that waits for the longest."""
    texts, reasons = [""] * 3, [""] * 3
    answer = _ask(client, n=3, max_tokens=30, temperature=1.0, seed=42, stream=is_streamed)
    for chunk in answer if is_streamed else [answer]:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] += choice.finish_reason or ""
    assert len({*texts}) == 3
    assert {*reasons} <= {"stop", "length"}


@pytest.mark.parametrize(
    ("options", "is_last", "is_each"),
    [
        ({}, False, False),
        ({"include_usage": False, "continuous_usage_stats": False}, False, False),
        ({"include_usage": False, "continuous_usage_stats": True}, False, False),
        ({"include_usage": True, "continuous_usage_stats": False}, True, False),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
    ],
)
def test_a_stream_has_the_usage_that_was_asked_for(
    client: openai.OpenAI, options: Any, is_last: bool, is_each: bool
) -> None:
    for stream in (
        _ask(client, stream=True, stream_options=options),
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": TEXT}],
            max_tokens=5,
            stream=True,
            stream_options=options,
        ),
    ):
        chunks = list(stream)
        said = [chunk for chunk in chunks if chunk.choices]
        assert [chunk.usage is not None for chunk in said] == [is_each] * len(said)
        assert [chunk for chunk in chunks if not chunk.choices] == chunks[len(said) :]
        assert len(chunks) - len(said) == is_last
        for usage in (chunk.usage for chunk in chunks if chunk.usage):
            assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
            assert usage.prompt_tokens > 0


@pytest.mark.parametrize("option", ["include_usage", "continuous_usage_stats"])
def test_options_of_a_stream_do_not_go_with_a_whole_answer(client: openai.OpenAI, option: str) -> None:
    with pytest.raises(openai.BadRequestError, match="stream=true"):
        _ask(client, stream_options={option: True})


@pytest.mark.parametrize("prompts", [[TEXT] * 2, [TOKENS] * 2])
def test_prompts_that_are_equal_have_equal_answers(client: openai.OpenAI, prompts: Any) -> None:
    whole = [choice.text for choice in _ask(client, prompt=prompts).choices]
    texts = [""] * 2
    for chunk in _ask(client, prompt=prompts, stream=True):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
    assert whole[0] == whole[1]
    assert texts == whole


@pytest.mark.parametrize(
    "form",
    [
        {
            "json": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": "c"},
                "$defs": {"A": {"enum": [1]}},
            }
        },
        {"regex": "[.*"},
        {"grammar": 'root ::= missing\n\nother ::= "a" | "b"'},
    ],
)
def test_a_form_that_cannot_be_read_is_refused_before_the_first_token(client: openai.OpenAI, form: Any) -> None:
    for is_streamed in (False, True):
        with pytest.raises(openai.BadRequestError):
            _ask(client, stream=is_streamed, extra_body={"structured_outputs": form})


@pytest.mark.parametrize("is_streamed", [False, True])
def test_ids_names_and_texts_of_tokens_agree(client: openai.OpenAI, is_streamed: bool) -> None:
    """Would catch ids that belong to other tokens than the log-probabilities beside them."""
    extra = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    prompt = "I love coding 🚀"
    answer = _ask(client, prompt=prompt, logprobs=1, max_tokens=12, extra_body=extra, stream=is_streamed)
    chunks = list(answer) if is_streamed else [answer]
    named = [int(name.removeprefix("token_id:")) for chunk in chunks for name in chunk.choices[0].logprobs.tokens]
    sampled = [token for chunk in chunks for token in chunk.choices[0].token_ids]
    text = "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[0].choices[0].prompt_token_ids == get_tokenizer(MODEL).encode(prompt)
    assert named == sampled[: len(named)]
    assert get_tokenizer(MODEL).decode(sampled).startswith(text)
    assert text
