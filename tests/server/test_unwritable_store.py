"""A store that is full or locked: what changes nothing goes on, what changes something is held, then refused."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tests.contract.calls import new_trainer, train
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine, sample
from tests.server.unwritable import Unwritable, full_disk, locked_database
from tests.waiting import wait_until

from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import JournalReader, SegmentFiles

IMPATIENT = Settings(store_patience_seconds=0.2, long_poll_seconds=10.0, sweep_seconds=3600.0)
PATIENT = Settings(store_patience_seconds=60.0, long_poll_seconds=10.0, sweep_seconds=3600.0)
NEW_SESSION: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
PROMPT = tinker.ModelInput.from_ints([1, 2, 3])
PARAMS = tinker.SamplingParams(max_tokens=2, stop=[])


@pytest.fixture(params=[full_disk, locked_database])
def unwritable(request: pytest.FixtureRequest) -> Unwritable:
    way: Unwritable = request.param
    return way


@pytest.fixture
def engine() -> Iterator[HeldEngine]:
    engine = HeldEngine()
    engine.free.set()
    yield engine
    engine.free.set()


@contextmanager
def serving(state_dir: Path, engine: FakeEngine, settings: Settings) -> Iterator[Server]:
    with hosted(state_dir, lambda: engine, settings) as host:
        server = Server(host, engine)
        with server.http:
            yield server


def step(server: Server, model_id: str, seq_id: int) -> str:
    content = {"model_id": model_id, "seq_id": seq_id, "adam_params": {"learning_rate": 0.1}}
    return str(server.post("/optim_step", **content)["request_id"])


def changes(session_id: str, model_id: str, path: str) -> dict[str, dict[str, Any]]:
    """A request to each route that changes what a restart has to bring back."""
    adam = {"learning_rate": 0.1}
    return {
        "/create_session": NEW_SESSION,
        "/create_model": {"session_id": session_id, "model_seq_id": 7, "base_model": "cookhouse/tiny"},
        "/create_sampling_session": {
            "session_id": session_id,
            "sampling_session_seq_id": 7,
            "base_model": "cookhouse/tiny",
        },
        "/optim_step": {"model_id": model_id, "seq_id": 7, "adam_params": adam},
        "/save_weights": {"model_id": model_id, "seq_id": 7, "path": "new"},
        "/save_weights_for_sampler": {"model_id": model_id, "seq_id": 7, "sampling_session_seq_id": 8},
        "/load_weights": {"model_id": model_id, "seq_id": 7, "path": path, "optimizer": True},
    }


def test_changes_are_refused_in_words_and_all_else_goes_on(tmp_path: Path, unwritable: Unwritable) -> None:
    """Would catch a run that ends for a disk that is full for a minute, and an engine that waits for a row."""
    engine = FakeEngine()
    with serving(tmp_path, engine, IMPATIENT) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        (drawn,) = sample(server, session_id, 1)
        saved = server.post("/save_weights", model_id=model_id, seq_id=1, path="kept")["request_id"]
        path = server.result(saved).json()["path"]
        requests = changes(session_id, model_id, path)
        calls = list(engine.calls)
        with unwritable(tmp_path):
            with ThreadPoolExecutor(len(requests)) as senders:
                answers = senders.map(lambda route: server.http.post(route, json=requests[route]), requests)
            for answer in answers:
                assert answer.status_code == 503, answer.text
                assert answer.headers["Retry-After"] == "1"
                assert "nothing could be written for 0.2 s: the service's database" in answer.json()["detail"]
            assert server.forward_backward(model_id, 2).status_code == 503
            assert engine.calls == calls
            (again,) = sample_again(server, session_id)
            for request_id in (drawn, again, saved):
                assert "error" not in server.result(request_id).text
            server.post("/session_heartbeat", session_id=session_id)
            assert server.post("/get_info", model_id=model_id)["model_id"] == model_id
            assert len(server.http.get("/checkpoints").json()["checkpoints"]) == 1
        for route, content in requests.items():
            content |= {"seq_id": 8 + list(requests).index(route)} if "seq_id" in content else {}
            accepted = server.post(route, **content)
            if "request_id" in accepted:
                assert "error" not in server.result(accepted["request_id"]).text


def sample_again(server: Server, session_id: str, **content: Any) -> list[str]:
    """Of a sampler that there is: it need not be written again."""
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    request = {"prompt": prompt, "sampling_params": {"max_tokens": 3}, "sampling_session_id": f"{session_id}:sample:0"}
    return [server.post("/asample", **request, **content)["request_id"]]


def test_a_sample_that_cannot_be_recorded_is_not_given(
    tmp_path: Path, engine: HeldEngine, unwritable: Unwritable
) -> None:
    """Would catch tokens that a client is given to train on, and is then told that they were never sampled."""
    with serving(tmp_path, engine, replace(IMPATIENT, stable_reinforce="own")) as server:
        session_id = server.session()
        sample(server, session_id, 1)
        with unwritable(tmp_path):
            (lost,) = sample_again(server, session_id, record_stability_info=True)
            told = server.result(lost).json()
            assert told["category"] == "server"
            assert "nothing could be written for 0.2 s" in told["error"]
        (kept,) = sample_again(server, session_id, record_stability_info=True)
        assert "error" not in server.result(kept).text


def test_what_was_accepted_goes_on_and_survives(tmp_path: Path, engine: HeldEngine, unwritable: Unwritable) -> None:
    """Would catch a result that waits until it is written, and a step that a restart has forgotten, or does twice."""
    settings = Settings(store_patience_seconds=0.2, state_seconds=0.0, sweep_seconds=3600.0)
    with serving(tmp_path, engine, settings) as server:
        model_id, twin_id = (server.model(server.session()) for _ in range(2))
        accept(server, twin_id, range(1, 9))
        engine.free.clear()
        passing = server.forward_backward(model_id, 1).json()["request_id"]
        wait_until(lambda: engine.calls[-1][0] == "begin")
        accepted = [passing, step(server, model_id, 2), *others(server, model_id, range(3, 7))]
        with unwritable(tmp_path):
            engine.free.set()
            for request_id in accepted:
                assert "error" not in server.result(request_id).text
            assert server.forward_backward(model_id, 7).status_code == 503
        accept(server, model_id, range(7, 9))
    again = FakeEngine()
    with serving(tmp_path, again, settings) as server:
        assert server.grad_norm(model_id, 9) == server.grad_norm(twin_id, 9) == 0.0
        assert again._models[model_id].bias_V.tolist() == again._models[twin_id].bias_V.tolist()
        assert again._models[model_id].num_steps == again._models[twin_id].num_steps == 5


def others(server: Server, model_id: str, seq_ids: range) -> list[str]:
    """Passes and steps in turn."""
    return [
        step(server, model_id, seq_id)
        if seq_id % 2 == 0
        else server.forward_backward(model_id, seq_id).json()["request_id"]
        for seq_id in seq_ids
    ]


def accept(server: Server, model_id: str, seq_ids: range) -> None:
    for request_id in others(server, model_id, seq_ids):
        assert "error" not in server.result(request_id).text


def test_five_copies_of_a_request_are_one(tmp_path: Path, unwritable: Unwritable) -> None:
    """Would catch a client whose copies of a request, sent while it waited, all run once the store is there again."""
    engine = FakeEngine()
    with serving(tmp_path, engine, PATIENT) as server, ThreadPoolExecutor(40) as senders:
        session_id = server.session()
        model_id = server.model(session_id)
        saved = server.post("/save_weights", model_id=model_id, seq_id=1, path="kept")["request_id"]
        requests = changes(session_id, model_id, server.result(saved).json()["path"])
        for index, content in enumerate(requests.values()):
            content |= {"seq_id": 2 + index} if "seq_id" in content else {}
        calls = len(engine.calls)
        headers = {"X-Idempotency-Key": "one"}
        with unwritable(tmp_path):
            sent: dict[str, list[Future[httpx.Response]]] = {
                route: [senders.submit(server.http.post, route, json=content, headers=headers) for _ in range(5)]
                for route, content in requests.items()
            }
            passes = [senders.submit(server.forward_backward, model_id, 20) for _ in range(5)]
            time.sleep(0.5)
            for route, answers in [*sent.items(), ("/forward_backward", passes)]:
                assert [answer.result() for answer in answers if answer.done()] == [], route
        for route, answers in [*sent.items(), ("/forward_backward", passes)]:
            contents = [answer.result().json() for answer in answers]
            assert contents == [contents[0]] * 5, route
            if "request_id" in contents[0]:
                server.result(contents[0]["request_id"])
        names = [name for name, _ in engine.calls[calls:] if not name.startswith("copy")]
        assert sorted(names) == ["create_model", "forward_backward", "load_state", "optim_step", "snapshot"]


def test_clients_of_the_sdk_wait_and_go_on(tmp_path: Path, unwritable: Unwritable) -> None:
    """Would catch a refusal that the SDK raises, though the same request will be accepted later."""
    with (
        hosted(tmp_path, FakeEngine, IMPATIENT) as host,
        tinker.ServiceClient(base_url=host.url, api_key=KEY) as client,
    ):
        undisturbed, trainer = new_trainer(client), new_trainer(client)
        expected = train(undisturbed, 2)
        sampler = trainer.save_weights_and_get_sampling_client().result()
        with ThreadPoolExecutor(2) as threads:
            with unwritable(tmp_path):
                training = threads.submit(train, trainer, 2)
                making = threads.submit(new_trainer, client)
                assert len(sampler.sample(PROMPT, 1, PARAMS).result().sequences[0].tokens) == 2
                time.sleep(1.0)
                assert not training.done()
                assert not making.done()
            assert training.result(60) == expected
            assert train(making.result(60), 2) == expected


def test_a_body_that_is_cut_off_is_no_request(tmp_path: Path) -> None:
    """Would catch half a request that is accepted, or that keeps the whole one from being accepted once."""
    engine = FakeEngine()
    with serving(tmp_path, engine, IMPATIENT) as server:
        session_id = server.session()
        model_id = server.model(session_id)
        calls, body = list(engine.calls), server.http.build_request("POST", "/optim_step", json=adam(model_id)).content
        url = server.http.base_url
        for route in ("optim_step", "forward_backward"):
            with socket.create_connection((url.host, url.port or 0)) as cut:
                head = f"POST /api/v1/{route} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\n"
                cut.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
        reader = JournalReader(server.host.service.storage.store, SegmentFiles("rows"))
        wait_until(lambda: not server.host.service.sequencer.held._by_owner)
        assert [one.kind for one in reader.entries(session_id)] == ["create_model"]
        assert engine.calls == calls
        accepted = [server.post("/optim_step", **adam(model_id))["request_id"] for _ in range(2)]
        assert accepted[0] == accepted[1]
        assert "error" not in server.result(accepted[0]).text
        assert [one.kind for one in reader.entries(session_id)] == ["create_model", "optim_step"]


def adam(model_id: str) -> dict[str, Any]:
    return {"model_id": model_id, "seq_id": 1, "adam_params": {"learning_rate": 0.1}}
