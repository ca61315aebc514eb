"""Fields of vLLM's on OpenAI's routes: ids in place of texts, usage as it grows, and scores of the prompt."""

from typing import Any

import openai
import pytest
from tests.server.endpoint.conftest import MODEL

ASKED: Any = [{"role": "user", "content": "Tell me."}]
PROMPT = "One snowy day Maria"


def test_tokens_are_called_by_their_ids(client: openai.OpenAI) -> None:
    """Would catch programs that read the id of a token from its name, and get a text that is no id."""
    asked: Any = {"model": MODEL, "max_tokens": 4, "seed": 3}
    extra: Any = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    chat: Any = client.chat.completions.create(messages=ASKED, logprobs=True, top_logprobs=1, extra_body=extra, **asked)
    (choice,) = chat.choices
    names = [f"token_id:{token}" for token in choice.token_ids]
    assert [entry.token for entry in choice.logprobs.content] == names[: len(choice.logprobs.content)]
    assert all(entry.top_logprobs[0].token.startswith("token_id:") for entry in choice.logprobs.content)
    completion: Any = client.completions.create(prompt=PROMPT, logprobs=1, extra_body=extra, **asked)
    (choice,) = completion.choices
    names = [f"token_id:{token}" for token in choice.token_ids]
    assert choice.logprobs.tokens == names[: len(choice.logprobs.tokens)]


@pytest.mark.parametrize("is_chat", [True, False])
def test_usage_grows_with_the_answer(client: openai.OpenAI, is_chat: bool) -> None:
    """Would catch tokens counted twice, in the middle of an answer or at its end."""
    asked: Any = {"model": MODEL, "max_tokens": 5, "temperature": 0.0, "stream": True}
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    create: Any = client.chat.completions.create if is_chat else client.completions.create
    given: Any = {"messages": ASKED} if is_chat else {"prompt": PROMPT}
    counts = [chunk.usage.completion_tokens for chunk in create(stream_options=options, **asked, **given)]
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert len({*counts}) > 2


def test_the_prompt_is_scored(client: openai.OpenAI) -> None:
    """Would catch scores of another prompt, or the first token scored, which nothing precedes."""
    extra: Any = {"prompt_logprobs": 2, "return_token_ids": True}
    asked: Any = {"model": MODEL, "max_tokens": 1, "extra_body": extra}
    chat: Any = client.chat.completions.create(messages=ASKED, **asked)
    completion: Any = client.completions.create(prompt=PROMPT, **asked)
    echoed: Any = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0, echo=True, logprobs=0)
    for scores, tokens in (
        (chat.prompt_logprobs, chat.prompt_token_ids),
        (completion.choices[0].prompt_logprobs, completion.choices[0].prompt_token_ids),
    ):
        assert scores[0] is None
        assert all(str(token) in place for token, place in zip(tokens[1:], scores[1:], strict=True))
        assert all({one["rank"] for one in place.values()} >= {1, 2} for place in scores[1:])
    said = [place[str(token)]["logprob"] for token, place in zip(tokens[1:], scores[1:], strict=True)]
    assert said == pytest.approx(echoed.choices[0].logprobs.token_logprobs[1:], abs=1e-5)


def test_true_asks_for_logprobs_of_a_completion(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "prompt": PROMPT, "max_tokens": 3, "seed": 1}
    answer: Any = client.completions.create(**asked, extra_body={"logprobs": True})
    same: Any = client.completions.create(**asked, logprobs=1)
    assert answer.choices[0].logprobs == same.choices[0].logprobs
    assert client.completions.create(**asked, extra_body={"logprobs": False}).choices[0].logprobs is None
