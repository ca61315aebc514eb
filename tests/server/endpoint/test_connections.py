"""Answers over connections: their request ids, and pings while nothing is sampled."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tests.server.endpoint.conftest import MODEL, new_client
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted
from tests.waiting import wait_until

from cookhouse.engine.contract import SampleOutput
from cookhouse.server.http.routes.endpoint import exchange
from cookhouse.server.settings import Settings

MESSAGES: Any = [{"role": "user", "content": "Hello."}]
HEADERS = {"x-api-key": KEY}


class LateEngine(ScriptedEngine):
    """Says nothing until it may speak."""

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        super().__init__(answers)
        self.may_speak = threading.Event()

    def step_samples(self) -> Sequence[SampleOutput]:
        return super().step_samples() if self.may_speak.wait(0.001) else []

    @contextmanager
    def late(self) -> Iterator[None]:
        """Say nothing at first, while somebody waits who does not see the pings."""
        self.may_speak.clear()
        timer = threading.Timer(0.05, self.may_speak.set)
        timer.start()
        yield
        timer.join()


@pytest.mark.parametrize(("path", "header"), [("messages", "request-id"), ("chat/completions", "x-request-id")])
def test_every_answer_has_an_id_of_its_own(host: Host, path: str, header: str) -> None:
    """Would catch a failure that nobody can find again in a log."""
    asked = {"model": MODEL, "max_tokens": 2, "messages": MESSAGES}
    bodies = [asked, asked | {"stream": True}, asked | {"model": "nobody"}, {}]
    answers = [httpx.post(f"{host.url}/v1/{path}", json=body, headers=HEADERS, timeout=60) for body in bodies]
    answers.append(httpx.post(f"{host.url}/v1/{path}", json=asked))
    assert [answer.status_code for answer in answers] == [200, 200, 404, 400, 401]
    assert len({answer.headers[header] for answer in answers}) == len(answers)
    if path == "messages":
        assert answers[2].json()["request_id"] == answers[2].headers[header]


@pytest.mark.parametrize("path", ["/", "/v1/", "/oai/api/v1/", "/anthropic/api/v1/"])
def test_the_base_address_answers(host: Host, path: str) -> None:
    assert httpx.head(host.url + path).status_code == 200
    assert httpx.get(host.url + path).json()["name"] == "cookhouse"


def test_a_stream_says_that_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a proxy that cuts a request whose prompt takes minutes, and pings that a client cannot read."""
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.001)
    engine = LateEngine([[10, 11]])
    asked: Any = {"model": MODEL, "max_tokens": 3, "messages": MESSAGES}
    with hosted(tmp_path, lambda: engine) as host:
        body = asked | {"stream": True}
        with httpx.stream("POST", f"{host.url}/v1/messages", json=body, headers=HEADERS, timeout=60) as raw:
            lines = raw.iter_lines()
            assert next(lines) == "event: ping"
            engine.may_speak.set()
            assert "event: message_stop" in list(lines)
        with (
            engine.late(),
            anthropic.Anthropic(base_url=host.url, api_key=KEY, max_retries=0) as client,
            client.messages.stream(**asked) as stream,
        ):
            message = stream.get_final_message()
        with new_client(host) as other:
            with engine.late():
                chunks = list(other.chat.completions.create(**asked, stream=True))
            with engine.late():
                response = other.responses.create(model=MODEL, input="Hello.", max_output_tokens=3, stream=True)
                events = [event.type for event in response]
    assert message.usage.output_tokens == 2
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert (events[0], events[-1]) == ("response.created", "response.completed")


def test_a_stream_without_a_pause_has_no_ping(tmp_path: Path) -> None:
    """Would catch pings among tokens that come one after another."""
    asked: Any = {"model": MODEL, "max_tokens": 3, "messages": MESSAGES, "stream": True}
    with hosted(tmp_path, lambda: ScriptedEngine([[10, 11]])) as host:
        raw = httpx.post(f"{host.url}/v1/messages", json=asked, headers=HEADERS, timeout=60).text
    assert "event: message_stop" in raw
    assert "event: ping" not in raw


def test_what_fails_late_is_the_streams_last_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a stream that only ends, which agents take for a broken connection, and ask again."""
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.001)
    engine = LateEngine([[10]])
    with hosted(tmp_path, lambda: engine) as host, new_client(host) as client:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        host.on_loop(host.service.requests.answers.dismiss)
        with pytest.raises(openai.APIError, match="the server is stopping"):
            list(stream)
        wait_until(lambda: not host.service.requests.answers._live)


def test_what_is_made_comes_whole_with_pings_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PING_SECONDS", 0.005)

    async def made() -> AsyncGenerator[bytes, None]:
        for piece in (b"a", b"b"):
            yield piece
            await asyncio.sleep(0.05)

    async def main() -> list[bytes]:
        making = made()
        first = asyncio.ensure_future(anext(making))
        return [piece async for piece in exchange._kept_open(making, first, b".")]

    pieces = asyncio.run(main())
    assert [piece for piece in pieces if piece != b"."] == [b"a", b"b"]
    assert b"." in pieces


ASKED: dict[str, Any] = {
    "chat/completions": {"max_tokens": 3, "messages": MESSAGES},
    "completions": {"max_tokens": 3, "prompt": "Hello."},
    "messages": {"max_tokens": 3, "messages": MESSAGES},
    "responses": {"max_output_tokens": 3, "input": "Hello."},
}


def test_the_limit_of_a_key_counts_every_dialect(tmp_path: Path) -> None:
    """Would catch a dialect by which a key has more than its share, or whose client cannot read the refusal."""
    with hosted(tmp_path, lambda: ScriptedEngine([[10]]), Settings(max_queued_samples=0)) as host:
        for path, body in ASKED.items():
            for is_streamed in (False, True):
                asked = body | {"model": MODEL, "stream": is_streamed}
                answer = httpx.post(f"{host.url}/v1/{path}", json=asked, headers=HEADERS, timeout=60)
                assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
                said = "rate_limit_error" if path == "messages" else "rate_limit_exceeded"
                assert said in (answer.json()["error"]["type"], answer.json()["error"].get("code"))


def test_the_usage_of_a_key_counts_every_dialect(tmp_path: Path) -> None:
    """Would catch tokens that are sampled and billed to nobody."""
    used = []
    with hosted(tmp_path, lambda: ScriptedEngine([[10, 11]])) as host:
        for path, body in ASKED.items():
            asked = body | {"model": MODEL}
            answer = httpx.post(f"{host.url}/v1/{path}", json=asked, headers=HEADERS, timeout=60)
            told = answer.json()["usage"]
            headers = {"X-API-Key": KEY}
            whole = httpx.get(f"{host.url}/api/v1/usage", headers=headers).json()
            used.append((whole["prompt_tokens"], whole["sampled_tokens"], told))
    before = (0, 0)
    for prompt, sampled, told in used:
        num_prompt = told.get("prompt_tokens", told.get("input_tokens"))
        assert (prompt - before[0], sampled - before[1]) == (num_prompt, 2)
        before = (prompt, sampled)
