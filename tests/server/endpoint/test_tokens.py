"""vLLM's routes of tokens: samples in tokens, tokens of texts and conversations, and texts of tokens."""

import json
from typing import Any

import httpx
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.hosting import KEY, Host

from cookhouse.chat import get_renderer
from cookhouse.models.catalog import default_renderer
from cookhouse.models.tokenizers import get_tokenizer

ASKED: Any = [{"role": "user", "content": "What is 12 plus 7?"}]
PROMPT: list[int] = get_tokenizer(MODEL).encode("One snowy day Maria went to the park.", add_special_tokens=False)


def _post(host: Host, path: str, **body: Any) -> httpx.Response:
    return httpx.post(host.url + path, json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)


def _generated(host: Host, **body: Any) -> Any:
    answer = _post(host, "/inference/v1/generate", token_ids=PROMPT, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _events(answer: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_samples_are_those_of_a_completion(host: Host) -> None:
    """Would catch another seed or prompt, and an entry that has its id in one of both forms only."""
    params = {"max_tokens": 6, "seed": 3, "logprobs": 1, "temperature": 1.0, "n": 2, "skip_special_tokens": False}
    generated = _generated(host, model=MODEL, sampling_params=params | {"routed_experts_prompt_start": 3})
    asked = {"prompt": PROMPT, "max_tokens": 6, "seed": 3, "n": 2, "logprobs": 1, "return_token_ids": True}
    completed = _post(host, "/v1/completions", model=MODEL, **asked).json()
    for choice, other in zip(generated["choices"], completed["choices"], strict=True):
        assert choice["token_ids"] == other["token_ids"]
        assert choice["finish_reason"] == other["finish_reason"]
        content = choice["logprobs"]["content"]
        assert [one["logprob"] for one in content] == other["logprobs"]["token_logprobs"]
        assert [one["token_id"] for one in content] == choice["token_ids"]
        assert [one["token"] for one in content] == [f"token_id:{token}" for token in choice["token_ids"]]
        assert all(one["top_logprobs"][0]["rank"] == 1 for one in content)
        assert choice["weight_versions"] == [{"version": MODEL, "start": 0, "end": len(choice["token_ids"])}]
    assert generated["usage"]["prompt_tokens"] == len(PROMPT)


def test_a_stream_has_every_token_once(host: Host) -> None:
    """Would catch tokens that the last output tells again, and weights said of a part of them."""
    params = {"max_tokens": 6, "seed": 3, "logprobs": 0}
    whole = _generated(host, model=MODEL, sampling_params=params)["choices"][0]
    body = {"model": MODEL, "token_ids": PROMPT, "sampling_params": params, "stream": True}
    events = _events(_post(host, "/inference/v1/generate", **body, stream_options={"include_usage": True}))
    choices = [choice for event in events for choice in event["choices"]]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["token_ids"]
    assert choices[-1]["weight_versions"] == whole["weight_versions"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"]
    assert events[-1]["usage"]["completion_tokens"] == len(whole["token_ids"])


def test_a_stop_token_ends_a_sample_and_is_in_it(host: Host) -> None:
    params = {"max_tokens": 6, "seed": 3}
    tokens = _generated(host, sampling_params=params)["choices"][0]["token_ids"]
    choice = _generated(host, sampling_params=params | {"stop_token_ids": [tokens[2]]})["choices"][0]
    assert choice["token_ids"] == tokens[: tokens.index(tokens[2]) + 1]
    assert choice["finish_reason"] == "stop"


def test_without_a_limit_a_sample_may_take_the_context(host: Host) -> None:
    """Would catch the 16 tokens of completions, which cut every turn of an agent."""
    assert _generated(host, sampling_params={"seed": 3})["usage"]["completion_tokens"] > 16


def test_the_prompt_is_scored(host: Host) -> None:
    answer = _generated(host, sampling_params={"max_tokens": 1, "prompt_logprobs": 2}, return_token_ids=True)
    assert answer["prompt_token_ids"] == PROMPT
    assert answer["prompt_logprobs"][0] is None
    for token, place in zip(PROMPT[1:], answer["prompt_logprobs"][1:], strict=True):
        assert place[str(token)]["logprob"] < 0
        assert {one["rank"] for one in place.values()} >= {1, 2}


def test_texts_and_conversations_are_tokenized(host: Host) -> None:
    """Would catch another prompt than the model gets."""
    renderer = get_renderer(default_renderer(MODEL), get_tokenizer(MODEL))
    chat = _post(host, "/tokenize", model=MODEL, messages=ASKED).json()
    assert chat["tokens"] == renderer.build_generation_prompt(ASKED).to_ints()
    assert chat["count"] == len(chat["tokens"])
    assert chat["max_model_len"] == 2048
    text = _post(host, "/tokenize", prompt="One snowy day", add_special_tokens=False, return_token_strs=True).json()
    assert "".join(text["token_strs"]) == "One snowy day"
    assert _post(host, "/detokenize", tokens=text["tokens"]).json() == {"prompt": "One snowy day"}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/inference/v1/generate", {"token_ids": []}, "at least 1 item"),
    ("/inference/v1/generate", {"token_ids": [10**6], "sampling_params": {"max_tokens": 1}}, "vocabulary"),
    ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"max_tokens": 9999}}, "give at most 2047"),
    ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "must be from 1"),
    ("/inference/v1/generate", {"token_ids": [1], "output_mode": "text"}, "output_mode is tokens here"),
    ("/inference/v1/generate", {"token_ids": [1], "features": {"a": 1}}, "images are not taken"),
    ("/tokenize", {}, "give a prompt or messages"),
    ("/tokenize", {"messages": []}, "at least 1 item"),
    ("/detokenize", {"tokens": [10**6]}, "the vocabulary ends at"),
]


@pytest.mark.parametrize(("path", "body", "message"), BAD)
def test_what_cannot_be_done_is_refused(host: Host, path: str, body: dict[str, Any], message: str) -> None:
    answer = _post(host, path, **body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_an_unknown_model_and_no_key(host: Host) -> None:
    assert _post(host, "/tokenize", model="nobody", prompt="a").status_code == 404
    assert httpx.post(f"{host.url}/tokenize", json={"prompt": "a"}).status_code == 401


def test_answers_with_token_ids_have_the_record_of_their_grammar(host: Host) -> None:
    """Would catch a way of the answer that loses it, and one that has it where nothing was changed."""
    held = {"structured_outputs": {"regex": "[a-f]{6}"}, "max_tokens": 12, "seed": 3}
    asked = {"model": MODEL, "return_token_ids": True}
    messages = [{"role": "user", "content": "a"}]
    choices = [
        _generated(host, model=MODEL, sampling_params=held)["choices"][0],
        _post(host, "/v1/completions", **asked, prompt=PROMPT, **held).json()["choices"][0],
        _post(host, "/v1/chat/completions", **asked, messages=messages, **held).json()["choices"][0],
    ]
    for choice in choices:
        assert choice["is_grammar_end"]
        assert choice["num_masked"] == sum(choice["is_masked"]) > 0
        pairs = zip(choice["sampled_logprobs"], choice["free_logprobs"], choice["is_masked"], strict=True)
        assert [sampled > free for sampled, free, _ in pairs] == choice["is_masked"]
        assert len(choice["token_ids"]) == len(choice["is_masked"])
    free = _post(host, "/v1/completions", **asked, prompt=PROMPT, max_tokens=2).json()["choices"][0]
    assert not {"free_logprobs", "is_masked", "is_grammar_end"} & {*free}
