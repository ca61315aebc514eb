"""Requests that nobody would send on purpose: each is answered, by a result or by an error that blames the sender."""

import asyncio
import json
import math
import random
import string
from typing import Any

import httpx
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.hosting import KEY, Host

PATIENCE_SECONDS = 60.0
TOGETHER = 16

_STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 2**31, 2**63, 2**64, -(2**63), 10**30, "", "a", " ", "\n", "\x00",
    "é", "中文", "🙂", "\ud800", "<|im_end|>", "<think>", "</tool_call>", "{}", "0", "true", "auto", "none", "tinker://a/b/c",
    "../../etc/passwd", MODEL, [], {}, [[]], [{}], {"": None}, {"a": {"b": [1, "c"]}}, [None], [1, 2, 3], ["a"] * 20,
    {"type": "function"}, {"type": "object", "properties": {"a": True}}, {"$ref": "#"}, math.nan, math.inf,
]  # fmt: skip
_FIELDS = [
    "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "n", "seed", "stop", "stream", "user",
    "stream_options", "temperature", "top_k", "top_p", "logprobs", "top_logprobs", "tools", "tool_choice", "echo",
    "suffix", "best_of", "response_format", "logit_bias", "presence_penalty", "parallel_tool_calls", "metadata", "x",
]  # fmt: skip
_ROLES = ["system", "user", "assistant", "tool", "developer", "function", "robot"]


def _text(draw: random.Random) -> str:
    letters = string.printable + "é中🙂\u202e\x00�"
    return "".join(draw.choices(letters, k=draw.randrange(0, 30)))


def _value(draw: random.Random, depth: int = 0) -> Any:
    if depth < 3 and draw.random() < 0.25:
        values = [_value(draw, depth + 1) for _ in range(draw.randrange(4))]
        return values if draw.random() < 0.5 else {_text(draw): value for value in values}
    return draw.choice(_STRANGE) if draw.random() < 0.8 else _text(draw)


def _message(draw: random.Random) -> Any:
    message: dict[str, Any] = {"role": draw.choice(_ROLES), "content": _text(draw)}
    if draw.random() < 0.3:
        message["content"] = [{"type": draw.choice(["text", "thinking", "image_url", "refusal"]), "text": _text(draw)}]
    if draw.random() < 0.2:
        call = {"id": "c", "type": "function", "function": {"name": _text(draw), "arguments": _text(draw)}}
        message["tool_calls"] = [call, _value(draw)][: draw.randrange(3)]
    if draw.random() < 0.2:
        message[draw.choice(["name", "tool_call_id", "reasoning_content", "trainable", "tools", "refusal"])] = _value(
            draw
        )
    return message


def _schema(draw: random.Random, depth: int = 0) -> Any:
    schema: dict[str, Any] = {"type": draw.choice(["object", "string", "array", ["string", "null"], "objekt"])}
    if depth < 3:
        schema["properties"] = {_text(draw): _schema(draw, depth + 1) for _ in range(draw.randrange(3))}
        schema[draw.choice(["items", "enum", "anyOf", "required", "$defs", "default", "const"])] = _value(draw)
    return schema


def _body(draw: random.Random, route: str) -> dict[str, Any]:
    """A good request with some of it changed."""
    body: dict[str, Any] = {"model": MODEL, "max_tokens": draw.randrange(1, 4), "stream": draw.random() < 0.3}
    if route == "completions":
        prompts: list[Any] = [_text(draw), [_text(draw)] * 2, [draw.randrange(1500) for _ in range(5)], [[1], [2, 3]]]
        body["prompt"] = draw.choice(prompts)
    else:
        body["messages"] = [_message(draw) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.5:
            body["messages"] = [{"role": "user", "content": _text(draw)}]
        if draw.random() < 0.3:
            function = {"name": draw.choice(["f", "g", _text(draw)]), "parameters": _schema(draw)}
            body["tools"] = [{"type": "function", "function": function}]
    for _ in range(draw.randrange(3)):
        body[draw.choice(_FIELDS)] = _value(draw)
    return body


def _content(draw: random.Random, route: str) -> bytes:
    content = json.dumps(_body(draw, route)).encode()
    if draw.random() < 0.05:  # cut, or with a byte that is none of JSON's
        place = draw.randrange(len(content))
        return content[:place] if draw.random() < 0.5 else content[:place] + b"\xff" + content[place + 1 :]
    return content


async def _send(host: Host, seeds: range) -> dict[int, int]:
    """The statuses, by how often; what is wrong with an answer is an assertion."""
    statuses: dict[int, int] = {}
    waiting = iter(seeds)

    async def send_some(client: httpx.AsyncClient) -> None:
        for seed in waiting:
            draw = random.Random(seed)
            route = draw.choice(["completions", "chat/completions"])
            answer = await client.post(f"/v1/{route}", content=_content(draw, route))
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code in (200, 400, 404), (seed, answer.text)
            if answer.status_code != 200:
                assert answer.json()["error"]["message"], seed
            elif answer.headers["content-type"].startswith("text/event-stream"):
                assert answer.text.endswith("data: [DONE]\n\n"), (seed, answer.text)
            else:
                assert answer.json()["choices"], seed

    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=host.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        await asyncio.gather(*(send_some(client) for _ in range(TOGETHER)))
    return statuses


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_is_answered_by_a_fault_or_not_at_all(host: Host, count: int) -> None:
    statuses = asyncio.run(_send(host, range(count)))
    assert sum(statuses.values()) == count
    assert statuses[200] > count / 10, "most were refused at once, and tested nothing behind that"
    assert statuses[400] > count / 10
    assert not host.service.requests.answers._live
