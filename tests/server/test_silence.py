"""What becomes of the work of a client that has said goodbye, or has been killed and says nothing."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, SampleOutput
from cookhouse.errors import InputError
from cookhouse.server.refusals import GoneError
from cookhouse.server.settings import Settings

SETTINGS = Settings(silent_seconds=60.0, session_seconds=300.0, sweep_seconds=3600.0, long_poll_seconds=10.0)


class HeldEngine(FakeEngine):
    """Finishes no pass and no sample while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> Sequence[ForwardBackwardOutput | InputError]:
        self.calls.append(("begin", [request.model_id for request in requests]))
        self.free.wait(10)
        return super().forward_backward(requests)

    def step_samples(self) -> Sequence[SampleOutput]:
        return super().step_samples() if self.free.wait(0.001) else ()


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


def sample(server: Server, session_id: str, count: int, **content: Any) -> list[str]:
    """Submit samples of a base model; returns their request ids."""
    sampler = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    sampler_id = server.post("/create_sampling_session", **sampler)["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    request = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": {"max_tokens": 3}, **content}
    return [server.post("/asample", **request)["request_id"] for _ in range(count)]


def fall_silent(server: Server, session_id: str, seconds: float) -> None:
    """Let a session not have been heard of for this long, and the server look."""
    (session,) = [session for session in server.host.service.sessions if session.session_id == session_id]
    session.heard_at = time.monotonic() - seconds
    server.host.on_loop(server.host.service.sweeper.sweep)


@pytest.mark.parametrize("ending", ["finished", "silent"])
def test_samples_and_scores_of_a_client_that_is_gone_are_dropped(
    server: Server, engine: HeldEngine, ending: str
) -> None:
    """Would catch a killed client's queue that its neighbors wait for, and samples that run on for nobody."""
    mine, other = server.session(), server.session()
    samples = sample(server, mine, 20)
    scores = sample(server, mine, 20, prompt_logprobs=True)
    neighbors = sample(server, other, 1)
    wait_until(lambda: len(engine._running) == 41)
    if ending == "finished":
        server.post(f"/sessions/{mine}/finish", reason={"type": "interrupted"})
    else:
        fall_silent(server, mine, 61)
    wait_until(lambda: len(engine._running) == 1)
    answers = [server.result(request_id) for request_id in samples + scores]
    # The SDK samples again after a 410, if the client was not dead; after a goodbye nobody should.
    assert {answer.status_code for answer in answers} == {200 if ending == "finished" else 410}
    assert all(mine in answer.json()["error"] for answer in answers)
    engine.free.set()
    assert server.result(neighbors[0]).headers["content-type"] == "application/x-protobuf"


def test_training_of_a_silent_client_is_kept_whole(server: Server, engine: HeldEngine) -> None:
    """Would catch a step that is skipped while those around it run: a gradient without its step is another model."""
    session_id = server.session()
    model_id = server.model(session_id)
    accepted = [server.forward_backward(model_id, 1).json()["request_id"]]
    for seq_id in (2, 4):
        step = server.post("/optim_step", model_id=model_id, seq_id=seq_id, adam_params={"learning_rate": 0.1})
        accepted.append(step["request_id"])
        accepted.append(server.forward_backward(model_id, seq_id + 1).json()["request_id"])
    wait_until(lambda: ("begin", [model_id]) in engine.calls)
    fall_silent(server, session_id, 299)
    engine.free.set()
    answers = [server.result(request_id) for request_id in accepted]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert "error" not in answers[1].json()
    done = [name for name, _ in engine.calls if name in ("forward_backward", "optim_step")]
    assert done == ["forward_backward", "optim_step"] * 2 + ["forward_backward"]
    server.post("/session_heartbeat", session_id=session_id)


def test_training_of_a_dead_client_is_released_whole(server: Server, engine: HeldEngine) -> None:
    """Would catch a dead client's queue that runs on, one of its requests that runs after another was dropped, and a
    client that is left to wait for an engine which is still at what it asked for.
    """
    session_id = server.session()
    model_id = server.model(session_id)
    accepted = [server.forward_backward(model_id, 1).json()["request_id"]]
    wait_until(lambda: ("begin", [model_id]) in engine.calls)
    step = server.post("/optim_step", model_id=model_id, seq_id=2, adam_params={"learning_rate": 0.1})
    accepted += [step["request_id"], server.forward_backward(model_id, 3).json()["request_id"]]
    (session,) = server.host.service.sessions
    session.outlasting = frozenset()  # as if what the engine had when it fell silent were done
    fall_silent(server, session_id, 301)
    answers = [server.result(request_id).json() for request_id in accepted]
    assert ["has ended: its client was not heard of for 301 s" in answer["error"] for answer in answers] == [True] * 3
    engine.free.set()
    wait_until(lambda: engine.calls[-1] == ("delete_model", model_id))
    assert "optim_step" not in [name for name, _ in engine.calls]
    assert server.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410


def test_what_the_engine_has_counts_as_heard_of(server: Server, engine: HeldEngine) -> None:
    """Would catch a session that ends while its client's request takes longer than silence may."""
    session_id = server.session()
    model_id = server.model(session_id)
    server.forward_backward(model_id, 1)
    wait_until(lambda: ("begin", [model_id]) in engine.calls)
    for _ in range(2):
        fall_silent(server, session_id, 301)
    (session,) = server.host.service.sessions
    engine.free.set()
    wait_until(lambda: not server.host.service.sequencer.running(session.models[0]))
    fall_silent(server, session_id, 599)
    assert server.host.service.sessions.has(session_id), "its clock begins when the engine is done"
    session.worked_at -= 301
    fall_silent(server, session_id, 599)
    assert not server.host.service.sessions.has(session_id)


def test_a_poll_that_is_open_counts_as_heard_of(server: Server, engine: HeldEngine) -> None:
    session_id = server.session()
    model_id = server.model(session_id)
    request_id = server.forward_backward(model_id, 1).json()["request_id"]
    answers: list[int] = []
    polling = threading.Thread(target=lambda: answers.append(server.result(request_id).status_code))
    polling.start()
    (session,) = server.host.service.sessions
    wait_until(lambda: session.session_id in server.host.service.sessions._num_polls)
    session.outlasting = frozenset()
    fall_silent(server, session_id, 301)
    engine.free.set()
    polling.join(10)
    assert answers == [200]
    assert time.monotonic() - session.heard_at < 61, "it was heard of until it had its answer"


def test_a_body_on_its_way_counts_as_heard_of(server: Server) -> None:
    """Would catch a client on a slow line that is taken for dead while it sends."""
    session_id = server.session()
    host, port = server.host.url.removeprefix("http://").split(":")
    head = f"POST /api/v1/optim_step HTTP/1.1\r\nhost: {host}:{port}\r\nx-api-key: {KEY}\r\ncontent-length: 99\r\n\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(head.encode() + b'{"model_id"')
        wait_until(lambda: server.host.service.sessions._arriving)
        fall_silent(server, session_id, 301)
        assert server.host.service.sessions.has(session_id)
    wait_until(lambda: not server.host.service.sessions._arriving)
    fall_silent(server, session_id, 301)
    assert not server.host.service.sessions.has(session_id)


def test_a_server_of_one_run_ends_none_of_its_sessions(tmp_path: Path) -> None:
    """Would catch a run that is starved for minutes, and whose own server gives it up."""
    with hosted(tmp_path, FakeEngine, SETTINGS, end_sessions=["eof"]) as host:
        server = Server(host, FakeEngine())
        fall_silent(server, session_id := server.session(), 1e6)
        assert host.service.sessions.has(session_id)
        server.http.close()


def test_a_client_that_waits_for_a_result_is_not_silent(server: Server, engine: HeldEngine) -> None:
    """Would catch a client whose heartbeat does not get through and whose samples are dropped while it polls."""
    session_id = server.session()
    (request_id,) = sample(server, session_id, 1)
    (session,) = server.host.service.sessions
    session.heard_at -= 61
    engine.free.set()
    assert server.result(request_id).status_code == 200
    assert time.monotonic() - session.heard_at < 61


def test_whatever_a_client_asks_for_is_a_sign_of_life(server: Server) -> None:
    """Would catch a client that trains or samples, and is taken for dead because its heartbeat does not get through."""
    session_id = server.session()
    model_id = server.model(session_id)
    sampler = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    sampler_id = server.post("/create_sampling_session", **sampler)["sampling_session_id"]
    (session,) = server.host.service.sessions
    poll = {"target": {"sampling_session_id": sampler_id}, "timeout": 0.0}
    for route, content in (
        ("/optim_step", {"model_id": model_id, "seq_id": 1, "adam_params": {"learning_rate": 0.1}}),
        ("/retrieve_futures", poll),
        ("/session_heartbeat", {"session_id": session_id}),
    ):
        session.heard_at -= 61
        server.post(route, **content)
        assert time.monotonic() - session.heard_at < 61, route


def test_a_client_that_was_only_slow_samples_again(tmp_path: Path, engine: HeldEngine) -> None:
    """Would catch a run that ends because its process was stopped for a minute."""
    with (
        hosted(tmp_path, lambda: engine, SETTINGS) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        sampler = client.create_sampling_client(base_model="cookhouse/tiny").result()
        prompt = tinker.ModelInput.from_ints([1, 2])
        future = sampler.sample(prompt, 1, tinker.SamplingParams(max_tokens=3, stop=[]))
        wait_until(lambda: len(engine._running) == 1)
        dropped = engine._running[0].request.request_id
        (session,) = host.service.sessions
        host.on_loop(lambda: host.service.lifecycle.drop_samples(session, GoneError("it was silent")))
        wait_until(lambda: [one.request.request_id for one in engine._running] not in ([], [dropped]))
        engine.free.set()
        assert len(future.result().sequences[0].tokens) == 3


def test_a_sweep_that_is_under_way_ends_before_the_database_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a connection that a sweep opens behind the end, and nobody closes."""
    begun, order = threading.Event(), []
    with hosted(tmp_path, FakeEngine, Settings(sweep_seconds=0.01)) as host:
        close = host.service.storage.store.close

        def slow_sweep(_: object) -> None:
            begun.set()
            time.sleep(0.3)
            order.append("swept")

        def noted_close() -> None:
            order.append("closed")
            close()

        monkeypatch.setattr(host.service.storage.checkpoints, "sweep", slow_sweep)
        monkeypatch.setattr(host.service.storage.store, "close", noted_close)
        assert begun.wait(10)
    assert order[-2:] == ["swept", "closed"]
