"""Completions by OpenAI's client: prompts as text and as tokens, echoed, scored and streamed."""

from typing import Any

import openai
import pytest
import tinker
from tests.server.endpoint.conftest import MODEL
from tests.server.hosting import KEY, Host

from cookhouse.models.tokenizers import get_tokenizer

PROMPTS = ["What is 2 plus 2?", "Olivia walked"]


def _tokens(prompt: str) -> list[int]:
    return list(get_tokenizer(MODEL)(prompt).input_ids)


def test_prompts_as_text_and_as_tokens_are_the_same(client: openai.OpenAI) -> None:
    settings: Any = {"model": MODEL, "max_tokens": 8, "temperature": 0.0}
    texts = client.completions.create(prompt=PROMPTS, **settings)
    tokens = client.completions.create(prompt=[_tokens(prompt) for prompt in PROMPTS], **settings)
    alone = [client.completions.create(prompt=prompt, **settings).choices[0].text for prompt in PROMPTS]
    assert [one.text for one in texts.choices] == [one.text for one in tokens.choices] == alone
    assert [one.index for one in texts.choices] == [0, 1]
    assert texts.usage is not None
    assert texts.usage.prompt_tokens == sum(len(_tokens(prompt)) for prompt in PROMPTS)


def test_a_prompt_is_scored_as_by_the_sdk(host: Host, client: openai.OpenAI) -> None:
    """Would catch positions off by one: evaluation by log-likelihood asks in this way."""
    tokens = _tokens(PROMPTS[0])
    with tinker.ServiceClient(base_url=host.url, api_key=KEY) as service:
        sampler = service.create_sampling_client(base_model=MODEL).result()
        expected = sampler.compute_logprobs(tinker.ModelInput.from_ints(tokens)).result()
    scored = client.completions.create(model=MODEL, prompt=PROMPTS[0], echo=True, max_tokens=0, logprobs=1).choices[0]
    assert scored.text == PROMPTS[0]
    assert scored.logprobs is not None
    assert scored.logprobs.token_logprobs == pytest.approx(expected, abs=1e-4)
    assert "".join(scored.logprobs.tokens or []) == PROMPTS[0]
    starts = scored.logprobs.text_offset or []
    assert [
        PROMPTS[0][start:].startswith(name) for start, name in zip(starts, scored.logprobs.tokens or [], strict=True)
    ]
    best = [max(top.values()) for top in (scored.logprobs.top_logprobs or [])[1:] if top]
    assert all(one >= own for one, own in zip(best, expected[1:], strict=True) if own is not None)


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_says_what_the_whole_says(client: openai.OpenAI, echo: bool) -> None:
    settings: Any = {
        "model": MODEL,
        "prompt": PROMPTS,
        "n": 2,
        "max_tokens": 12,
        "seed": 3,
        "logprobs": 2,
        "echo": echo,
    }
    whole = client.completions.create(**settings)
    texts, tokens, logprobs, offsets, reasons = ({index: [] for index in range(4)} for _ in range(5))  # type: ignore[var-annotated]
    for chunk in client.completions.create(**settings, stream=True):
        (choice,) = chunk.choices
        texts[choice.index].append(choice.text)
        assert choice.logprobs is not None
        tokens[choice.index] += choice.logprobs.tokens or []
        logprobs[choice.index] += choice.logprobs.token_logprobs or []
        offsets[choice.index] += choice.logprobs.text_offset or []
        reasons[choice.index].append(choice.finish_reason)
    for choice in whole.choices:
        index = choice.index
        assert "".join(texts[index]) == choice.text
        assert choice.logprobs is not None
        assert (tokens[index], logprobs[index]) == (choice.logprobs.tokens, choice.logprobs.token_logprobs)
        assert offsets[index] == choice.logprobs.text_offset
        assert reasons[index] == [None] * (len(reasons[index]) - 1) + [choice.finish_reason]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_token_ids_are_those_of_the_prompts_and_of_the_samples(client: openai.OpenAI, is_streamed: bool) -> None:
    settings: Any = {"model": MODEL, "prompt": PROMPTS, "n": 2, "max_tokens": 12, "seed": 3, "logprobs": 0}
    answer: Any = client.completions.create(**settings, stream=is_streamed, extra_body={"return_token_ids": True})
    prompts: dict[int, list[list[int]]] = {index: [] for index in range(4)}
    sampled: dict[int, list[int]] = {index: [] for index in range(4)}
    for chunk in answer if is_streamed else [answer]:
        for choice in chunk.choices:
            sampled[choice.index] += choice.token_ids
            if hasattr(choice, "prompt_token_ids"):
                prompts[choice.index].append(choice.prompt_token_ids)
    assert prompts == {index: [_tokens(PROMPTS[index // 2])] for index in range(4)}
    plain = client.completions.create(**settings)
    assert not hasattr(plain.choices[0], "token_ids")
    for one in plain.choices:
        tokens = sampled[one.index]
        assert one.logprobs is not None
        assert len(tokens) == len(one.logprobs.tokens or []) + (one.finish_reason == "stop")
        assert get_tokenizer(MODEL).decode(tokens, skip_special_tokens=True) == one.text
    assert sum(map(len, sampled.values())) == (plain.usage and plain.usage.completion_tokens)


def test_a_completion_ends_before_a_stop(client: openai.OpenAI) -> None:
    settings: Any = {"model": MODEL, "prompt": PROMPTS[1], "max_tokens": 30, "temperature": 0.0}
    free = client.completions.create(**settings).choices[0].text
    stop = free[4:7]
    stopped = client.completions.create(**settings, stop=[stop]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (free[: free.index(stop)], "stop")


def test_sixteen_tokens_where_none_are_named(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPTS[1], stop=["never there"], seed=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
