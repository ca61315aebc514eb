"""A client that goes away: what was sampled for it is dropped, within a step."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from tests.server.endpoint.conftest import MODEL
from tests.server.endpoint.scripted import ScriptedEngine
from tests.server.hosting import KEY, Host, hosted
from tests.waiting import wait_until

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import SampleOutput
from cookhouse.engine.engine import Engine

HEADERS = {"Authorization": f"Bearer {KEY}"}
PATIENCE_SECONDS = 30.0
ENDLESS = [5] * 4000


class _SteppedEngine(ScriptedEngine):
    """Takes a step for each permit, and counts them."""

    def __init__(self) -> None:
        super().__init__([ENDLESS])
        self.permits = threading.Semaphore(0)
        self.num_steps = 0

    def step_samples(self) -> Sequence[SampleOutput]:
        if not self.permits.acquire(timeout=0.05):
            return ()
        self.num_steps += 1
        return super().step_samples()


@pytest.fixture
def stepped(tmp_path: Any) -> Iterator[tuple[Host, _SteppedEngine]]:
    engine = _SteppedEngine()
    with hosted(tmp_path, lambda: engine) as host:
        yield host, engine


def _raw(path: str, body: str) -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "Host: [::1]",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, *(f"{name}: {value}" for name, value in HEADERS.items()), "", body]).encode()


def _body(**settings: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": [7], "max_tokens": 4000} | settings


def test_a_stream_that_nobody_reads_any_more(stepped: tuple[Host, _SteppedEngine]) -> None:
    host, engine = stepped
    engine.permits.release(3)
    with httpx.stream("POST", f"{host.url}/v1/completions", json=_body(stream=True), headers=HEADERS) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    wait_until(lambda: not engine.has_samples())
    assert engine.num_steps <= 3, "it was dropped though no further step was taken"
    assert [name for name, _ in engine.calls] == ["cancel_sample"]
    wait_until(lambda: not host.service.requests.answers._live)


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_nobody_waits_for(stepped: tuple[Host, _SteppedEngine], route: str, is_streamed: bool) -> None:
    """Also before its first token."""
    host, engine = stepped
    body = _body(stream=is_streamed)
    if route.startswith("chat"):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "stream": is_streamed}
    url = httpx.URL(host.url)
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(_raw(f"/v1/{route}", json.dumps(body)))
        wait_until(lambda: bool(engine.requests))
    wait_until(lambda: not engine.has_samples())
    assert engine.num_steps == 0


def test_what_it_held_is_free(tmp_path: Any) -> None:
    """The blocks of the cache, on the real engine: would catch a request that goes on for nobody."""
    engines: list[TorchEngine] = []

    def make_engine() -> Engine:
        engines.append(TorchEngine(base_models=[MODEL], precision="float32"))
        return engines[0]

    with hosted(tmp_path, make_engine) as host:
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 1500, "n": 8, "stream": True, "stop": []}
        with httpx.stream("POST", f"{host.url}/v1/completions", json=body, headers=HEADERS, timeout=60) as answer:
            lines = answer.iter_lines()
            for _ in range(20):
                next(lines)
            (sampler,) = engines[0]._samplers.values()
            assert sampler._scheduler.running
        wait_until(lambda: not engines[0].has_samples())
        assert not sampler._scheduler.running
        assert not sampler._scheduler.waiting
        assert sampler.num_free_blocks == sampler._scheduler.blocks.num_blocks
        wait_until(lambda: not host.service.sequencer.samples._numbers[host.service.keys.owner_of(KEY)])


def test_a_server_that_stops_ends_its_streams(tmp_path: Any) -> None:
    engine = _SteppedEngine()
    with hosted(tmp_path, lambda: engine) as host:
        engine.permits.release(1)
        with httpx.stream("POST", f"{host.url}/v1/completions", json=_body(stream=True), headers=HEADERS) as answer:
            lines = answer.iter_lines()
            next(lines)
            host.on_loop(host.service.dismiss_waiters)
            rest = [line for line in lines if line]
    assert "the server is stopping" in rest[-1]
