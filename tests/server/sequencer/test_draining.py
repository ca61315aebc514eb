"""A server that was told to end: it answers what it has accepted, and accepts nothing more."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine, sample
from tests.waiting import wait_until

from cookhouse.server.settings import Settings

SETTINGS = Settings(sweep_seconds=3600.0, long_poll_seconds=10.0)


@pytest.fixture
def engine() -> Iterator[HeldEngine]:
    engine = HeldEngine()
    yield engine
    engine.free.set()


@pytest.fixture
def server(tmp_path: Path, engine: HeldEngine) -> Iterator[Server]:
    with hosted(tmp_path, lambda: engine, SETTINGS) as host:
        server = Server(host, engine)
        yield server
        engine.free.set()
        server.http.close()


def drain(server: Server, seconds: float = 30.0) -> "Future[bool]":
    service = server.host.service
    drained = asyncio.run_coroutine_threadsafe(service.drain(seconds), server.host.loop)
    wait_until(lambda: service.draining.is_begun)
    return drained


def in_thread(server: Server, route: str, **content: Any) -> "Future[httpx.Response]":
    answer: Future[httpx.Response] = Future()
    threading.Thread(target=lambda: answer.set_result(server.http.post(route, json=content))).start()
    return answer


def test_all_that_was_accepted_is_answered_and_fetched(server: Server, engine: HeldEngine) -> None:
    """Would catch a deployment that loses steps which clients were told are queued, or results on their way."""
    session_id = server.session()
    model_id = server.model(session_id)
    accepted = [server.forward_backward(model_id, seq_id).json()["request_id"] for seq_id in range(1, 21)]
    accepted += sample(server, session_id, 200)
    accepted.append(server.post("/save_weights", model_id=model_id, seq_id=21, path="queued")["request_id"])
    drained = drain(server)
    engine.free.set()
    wait_until(lambda: server.host.service.sequencer.futures.are_finished)
    time.sleep(0.2)
    assert not drained.done(), "nobody has the results yet"
    for request_id in accepted:
        result = server.result(request_id)
        assert result.status_code == 200
        assert "error" not in result.text
    assert drained.result(10)


def test_what_changes_state_waits_and_is_refused_at_the_end(server: Server, engine: HeldEngine) -> None:
    """Would catch a step that is accepted and then lost, and a client that waits longer and longer for the next
    server since it was refused again and again by this one.
    """
    session_id = server.session()
    model_id = server.model(session_id)
    running = server.forward_backward(model_id, 1).json()["request_id"]
    drained = drain(server)
    assert server.http.get(f"{server.host.url}/readyz").json()["detail"] == "the server is stopping"
    held = in_thread(server, "/optim_step", model_id=model_id, seq_id=2, adam_params={})
    asking = in_thread(server, "/retrieve_future", request_id=running)
    server.post("/session_heartbeat", session_id=session_id)
    server.post("/get_info", model_id=model_id)
    assert server.http.get("/training_runs").status_code == 200
    assert not held.done()
    engine.free.set()
    assert asking.result(10).status_code == 200
    assert drained.result(10)
    assert not held.done()
    server.host.on_loop(server.host.service.dismiss_waiters)
    refused = held.result(10)
    assert refused.status_code == 503
    assert "stopping" in refused.json()["detail"]
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    assert [name for name, _ in engine.calls].count("optim_step") == 0


def test_a_request_that_is_being_read_is_waited_for(server: Server, engine: HeldEngine) -> None:
    """Would catch a body that had begun to arrive, and an answer under way, that are cut."""
    engine.free.set()
    begun, go_on = threading.Event(), threading.Event()

    def body() -> Iterator[bytes]:
        yield b'{"tags": [], "user_metadata": null,'
        begun.set()
        go_on.wait(10)
        yield b'"sdk_version": "0.38.0"}'

    answer: Future[httpx.Response] = Future()
    threading.Thread(target=lambda: answer.set_result(server.http.post("/create_session", content=body()))).start()
    begun.wait(10)
    wait_until(lambda: server.host.service.draining._num_entered == 1)
    drained = drain(server)
    time.sleep(0.2)
    assert not drained.done()
    go_on.set()
    assert answer.result(10).status_code == 200
    assert drained.result(10)


def test_it_ends_though_not_all_is_answered(server: Server) -> None:
    """Would catch a server that waits for an engine for ever."""
    server.forward_backward(server.model(server.session()), 1)
    assert not drain(server, 0.1).result(10)


def test_what_is_not_answered_in_time_is_done_by_the_next_server(tmp_path: Path) -> None:
    """Would catch steps and a save that were accepted, and are gone with the server that was told to stop."""
    held, free = HeldEngine(), HeldEngine()
    free.free.set()
    with hosted(tmp_path, lambda: held, SETTINGS) as host, closing((server := Server(host, held)).http):
        session_id = server.session()
        model_id = server.model(session_id)
        passes = [server.forward_backward(model_id, seq_id).json()["request_id"] for seq_id in range(1, 21)]
        samples = sample(server, session_id, 200)
        saved = server.post("/save_weights", model_id=model_id, seq_id=21, path="queued")["request_id"]
        assert not drain(server, 0.1).result(10)
    held.free.set()
    with hosted(tmp_path, lambda: free, SETTINGS) as host, closing((server := Server(host, free)).http):
        results = [server.result(request_id) for request_id in [*passes, saved]]
        assert {result.status_code for result in results} == {200}
        assert results[-1].json()["path"].endswith("/weights/queued")
        assert {server.result(request_id).status_code for request_id in samples} == {410}
        assert [name for name, _ in free.calls].count("forward_backward") == 20


@pytest.mark.parametrize(("ends_left", "status"), [(True, 404), (False, 200)])
def test_a_new_run_does_not_get_the_sessions_of_the_last(tmp_path: Path, ends_left: bool, status: int) -> None:
    """Would catch the models of a killed run that fill the memory of the next one, and run its passes again first."""
    held, engine = HeldEngine(), FakeEngine()
    said: list[str] = []
    with hosted(tmp_path, lambda: held, SETTINGS) as host, closing((server := Server(host, held)).http):
        session_id = server.session()
        accepted = server.forward_backward(server.model(session_id), 1).json()["request_id"]
    held.free.set()
    options: dict[str, Any] = {"end_sessions": ["start"] if ends_left else [], "say": said.append}
    with hosted(tmp_path, lambda: engine, SETTINGS, **options) as host, closing((server := Server(host, engine)).http):
        assert server.result(accepted).status_code == status
        row = host.service.storage.store.session(session_id, host.service.keys.owner_of(KEY))
        assert row is not None
        assert row.finish_reason == ("interrupted" if ends_left else None)
        if not ends_left:
            wait_until(lambda: said)
    assert len(engine.calls) == (0 if ends_left else 2)
    assert [text.split(", and")[0] for text in said] == ([] if ends_left else ["restored 1 models of 1 sessions"])


def test_nobody_is_waited_for_who_is_gone(server: Server, engine: HeldEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a drain that takes its whole time for a client that was killed hours ago."""
    monkeypatch.setattr("cookhouse.server.sequencer.draining._FETCH_SECONDS", 0.1)
    engine.free.set()
    server.forward_backward(server.model(server.session()), 1)
    assert drain(server, 120.0).result(60)
    assert not server.host.service.sequencer.futures.are_fetched
