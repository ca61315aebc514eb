"""The protocol below the SDK: duplicates, ends of sessions, and requests no SDK would send."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.waiting import wait_until
from tinker.proto import tinker_public_pb2 as pb

from cookhouse.engine.contract import SampleOutput, SampleRequest
from cookhouse.server.settings import Settings
from cookhouse.server.wire import SampleShape, encode_sample

SETTINGS = Settings(max_body_bytes=100_000, long_poll_seconds=2.0, sweep_seconds=0.2)


class Server:
    """A hosted server and one tenant's connection to it."""

    def __init__(self, host: Host, engine: FakeEngine, key: str = KEY) -> None:
        self.host, self.engine = host, engine
        self.http = httpx.Client(base_url=f"{host.url}/api/v1", headers={"X-API-Key": key}, timeout=30, trust_env=False)

    def close(self) -> None:
        self.http.close()

    def post(self, route: str, /, **content: Any) -> Any:
        answer = self.http.post(route, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def session(self) -> str:
        return str(self.post("/create_session", tags=[], user_metadata=None, sdk_version="0.38.0")["session_id"])

    def model(self, session_id: str) -> str:
        created = self.post("/create_model", session_id=session_id, model_seq_id=0, base_model="cookhouse/tiny")
        assert self.result(created["request_id"]).json()["model_id"] == created["model_id"]
        return str(created["model_id"])

    def result(self, request_id: str) -> httpx.Response:
        return self.http.post("/retrieve_future", json={"request_id": request_id})

    def forward_backward(self, model_id: str, seq_id: int) -> httpx.Response:
        message = pb.ForwardBackwardRequest(model_id=model_id, seq_id=seq_id, loss_fn="cross_entropy")
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = np.array([1, 2], dtype="<i4").tobytes()
        targets = pb.Tensor(dtype=pb.DTYPE_INT64, dense=np.array([2, 3], dtype="<i8").tobytes())
        datum.loss_fn_inputs["target_tokens"].CopyFrom(targets)
        return self.http.post("/forward_backward", content=message.SerializeToString())

    def grad_norm(self, model_id: str, seq_id: int) -> float:
        accepted = self.post("/optim_step", model_id=model_id, seq_id=seq_id, adam_params={"learning_rate": 0.0})
        return float(self.result(accepted["request_id"]).json()["metrics"]["grad_norm"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    engine = FakeEngine()
    with hosted(tmp_path, lambda: engine, SETTINGS) as host:
        server = Server(host, engine)
        yield server
        server.http.close()


def test_duplicates_run_once(server: Server) -> None:
    """Would catch a retried request that doubles a gradient, makes two models, or two checkpoints."""
    session_id = server.session()
    first = server.post("/create_model", session_id=session_id, model_seq_id=0, base_model="cookhouse/tiny")
    again = server.post("/create_model", session_id=session_id, model_seq_id=0, base_model="cookhouse/tiny")
    assert first == again
    model_id = first["model_id"]
    accepted = [server.forward_backward(model_id, 1).json() for _ in range(3)]
    assert accepted[0] == accepted[1] == accepted[2]
    once = server.grad_norm(model_id, 2)
    server.forward_backward(model_id, 3)
    assert server.grad_norm(model_id, 4) == once
    saves = [server.post("/save_weights", model_id=model_id, seq_id=5, path="a") for _ in range(2)]
    assert saves[0] == saves[1]
    assert server.result(saves[0]["request_id"]).json()["path"].endswith("/weights/a")
    assert [name for name, _ in server.engine.calls].count("forward_backward") == 2
    assert [name for name, _ in server.engine.calls].count("create_model") == 1


def test_a_duplicate_of_a_refused_request_gets_its_answer(server: Server) -> None:
    """Would catch a retry that is taken for a request of its own because the first one never reached the engine."""
    model_id = server.model(server.session())
    step = {"model_id": model_id, "seq_id": 1, "adam_params": {"learning_rate": -1.0}}
    first, again = server.post("/optim_step", **step), server.post("/optim_step", **step)
    assert first == again
    assert "learning_rate" in server.result(first["request_id"]).json()["error"]


def test_duplicate_samples_run_once(server: Server) -> None:
    """Would catch a retried sample or sampler that is made twice; clones' ids are near 10**18."""
    session_id = server.session()
    request = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    sampler_id = server.post("/create_sampling_session", **request)["sampling_session_id"]
    assert server.post("/create_sampling_session", **request)["sampling_session_id"] == sampler_id
    sample = {
        "sampling_session_id": sampler_id,
        "seq_id": 10**18 - 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
        "sampling_params": {"max_tokens": 1},
        "num_samples": 2,
    }
    first, again = server.post("/asample", **sample), server.post("/asample", **sample)
    assert first == again
    assert len(first["sample_sequence_ids"]) == 2
    assert server.post("/create_sampling_session", **request)["sampling_session_id"] == sampler_id
    assert server.post("/asample", **sample) == first  # the sampler is still the one that knows the request


def test_models_without_a_seed_differ(server: Server) -> None:
    """Would catch runs that are meant to be independent and all begin with the same adapter."""
    models = [server.model(server.session()) for _ in range(2)]
    assert len({server.engine._models[model_id].lora.seed for model_id in models}) == 2


def test_a_result_that_cannot_be_encoded_fails_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one tenant's huge result that leaves its client waiting for ever, or fails all other samples."""

    def encode_but_for_long(output: SampleOutput, shape: SampleShape) -> bytes:
        if len(output.sequences) > 1:
            raise ValueError("message too large")
        return encode_sample(output, shape)

    monkeypatch.setattr("cookhouse.server.sequencer.sample_queue.encode_sample", encode_but_for_long)
    sampler_id = server.post(
        "/create_sampling_session",
        session_id=server.session(),
        sampling_session_seq_id=0,
        base_model="cookhouse/tiny",
    )["sampling_session_id"]
    accepted = [
        server.post(
            "/asample",
            sampling_session_id=sampler_id,
            prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            sampling_params={"max_tokens": 50},
            num_samples=num_samples,
        )["request_id"]
        for num_samples in (2, 1)
    ]
    failed, finished = (server.result(request_id) for request_id in accepted)
    assert "message too large" in failed.json()["error"]
    assert finished.headers["content-type"] == "application/x-protobuf"


def test_the_engine_knows_whose_sample_it_draws(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches prompts that the engine keeps for all tenants alike, and reuses for another.
    asked: list[str] = []
    submit = FakeEngine.submit_sample

    def spy(engine: FakeEngine, request: SampleRequest) -> None:
        asked.append(request.owner)
        submit(engine, request)

    monkeypatch.setattr(FakeEngine, "submit_sample", spy)
    other = Server(server.host, server.engine, OTHER_KEY)
    for tenant in (server, other):
        sampler = tenant.post(
            "/create_sampling_session",
            session_id=tenant.session(),
            sampling_session_seq_id=0,
            base_model="cookhouse/tiny",
        )
        accepted = tenant.post(
            "/asample",
            sampling_session_id=sampler["sampling_session_id"],
            prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            sampling_params={"max_tokens": 1},
            num_samples=1,
        )
        assert tenant.result(accepted["request_id"]).status_code == 200
    other.http.close()
    keys = server.host.service.keys
    assert asked == [keys.owner_of(KEY), keys.owner_of(OTHER_KEY)]


def test_session_keys_repeat(server: Server) -> None:
    """Would catch a retried create_session that leaves a second session behind, or finds one that has ended."""
    other = Server(server.host, server.engine, OTHER_KEY)
    first, again, another, theirs = (
        _keyed_session(tenant, key) for tenant, key in ((server, "a"), (server, "a"), (server, "b"), (other, "a"))
    )
    assert first == again
    assert len({first, another, theirs}) == 3
    server.post(f"/sessions/{first}/finish", reason={"type": "success"})
    server.post("/session_heartbeat", session_id=_keyed_session(server, "a"))
    other.http.close()


def test_results_may_be_fetched_again_and_polls_time_out(server: Server) -> None:
    """Would catch a result consumed by its first fetch, and a 408 without the body that the SDK reads."""
    model_id = server.model(server.session())
    accepted = server.forward_backward(model_id, 2).json()  # id 1 is missing, so it waits a second
    answers = [server.result(accepted["request_id"]) for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert answers[0].headers["content-type"] == "application/x-protobuf"
    future = server.host.service.sequencer.futures.create(
        "train-x", owner=server.host.service.keys.owner_of(KEY), session_id="s"
    )
    waiting = server.result(future.request_id)
    assert waiting.status_code == 408
    assert waiting.json() == {"type": "try_again", "request_id": future.request_id, "queue_state": "active"}


def test_a_finished_session_frees_its_models(server: Server) -> None:
    """Would catch adapters and snapshots that stay in memory after their client said it is done."""
    session_id = server.session()
    model_id = server.model(session_id)
    saved = server.post(
        "/save_weights_for_sampler", model_id=model_id, seq_id=1, sampling_session_seq_id=0, kind="snapshot"
    )
    sampler_id = server.result(saved["request_id"]).json()["sampling_session_id"]
    assert server.http.get(f"/samplers/{sampler_id}").json()["base_model"] == "cookhouse/tiny"
    server.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    server.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    assert server.http.post("/session_heartbeat", json={"session_id": session_id}).status_code == 410
    assert server.forward_backward(model_id, 2).status_code == 404
    assert server.http.get(f"/samplers/{sampler_id}").status_code == 404
    wait_until(lambda: {"delete_model", "delete_snapshot"} <= {name for name, _ in server.engine.calls})


def test_a_sampler_number_is_given_once(server: Server) -> None:
    """Would catch a snapshot that nothing leads to any more, and a client whose weights change under it."""
    session_id = server.session()
    model_id = server.model(session_id)
    answers = []
    for seq_id in (1, 2):
        saved = server.post(
            "/save_weights_for_sampler", model_id=model_id, seq_id=seq_id, sampling_session_seq_id=7, kind="snapshot"
        )
        answers.append(server.result(saved["request_id"]).json())
    assert answers[0]["sampling_session_id"].endswith(":7")
    assert "sampling_session_seq_id 7" in answers[1]["error"]
    server.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    wait_until(lambda: "delete_snapshot" in {name for name, _ in server.engine.calls})
    assert not server.engine._snapshots


def test_a_silent_session_ends(server: Server) -> None:
    """Would catch memory held for a client that died, and a session that ends although it beats."""
    silent, beating = server.session(), server.session()
    silent_model, beating_model = server.model(silent), server.model(beating)
    for session in server.host.service.sessions:
        session.heard_at -= SETTINGS.session_seconds - 10
    server.post("/session_heartbeat", session_id=beating)
    for session in server.host.service.sessions:
        session.heard_at -= 11
    wait_until(lambda: ("delete_model", silent_model) in server.engine.calls)
    assert ("delete_model", beating_model) not in server.engine.calls


def test_waiting_work_of_an_ended_session_fails(server: Server) -> None:
    """Would catch a future that nobody will ever finish."""
    session_id = server.session()
    model_id = server.model(session_id)
    waiting = server.forward_backward(model_id, 9).json()["request_id"]  # waits for the ids before it
    server.post(f"/sessions/{session_id}/finish", reason={"type": "errored"})
    assert "has ended" in server.result(waiting).json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        ("/create_model", b"{", 400, "body"),
        ("/create_model", b'{"session_id": "x", "model_seq_id": "y", "base_model": 3}', 400, "model_seq_id"),
        ("/create_model", b'{"session_id": "x", "model_seq_id": 0, "base_model": "cookhouse/tiny"}', 410, "session"),
        ("/optim_step", b'{"model_id": "x", "adam_params": {}}', 404, "model 'x'"),
        ("/forward_backward", b"\xff\xff\xff", 400, "protobuf"),
        ("/forward_backward", b"", 404, "model ''"),
        ("/forward_backward", bytes(200_000), 413, "at most 100000"),
        ("/retrieve_future", b'{"request_id": "train-0"}', 404, "unknown request"),
        ("/retrieve_future", b'{"request_id": "sample-0"}', 410, "again"),
        ("/cancel_future", b'{"request_id": "sample-0"}', 200, ""),
        ("/no_such_route", b"{}", 404, "POST /api/v1/no_such_route"),
        ("/get_info", b'{"model_id": "' + b"x" * 10 + b'"}', 404, "not loaded"),
    ],
)
def test_bad_requests_are_named(server: Server, path: str, body: bytes, status: int, named: str) -> None:
    """Would catch a 5xx or a 409, which the SDK retries for minutes, and an answer without a JSON body."""
    answer = server.http.post(path, content=body)
    assert answer.status_code == status, answer.text
    assert named in answer.json().get("detail", "")


def test_a_body_without_a_length_is_bounded(server: Server) -> None:
    """Would catch a limit that only looks at the declared length."""

    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield bytes(10_000)

    answer = server.http.post("/forward_backward", content=endless())
    assert answer.status_code == 413
    assert server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("key", [None, "", "tml-", "tml-test-key-00010", KEY[:-1]])
def test_every_route_asks_for_the_key(server: Server, key: str | None) -> None:
    """Would catch a route without the check, and keys compared by their beginning."""
    headers = {} if key is None else {"X-API-Key": key}
    stranger = httpx.Client(base_url=server.http.base_url, headers=headers, trust_env=False)
    with stranger:
        for route in ("/checkpoints", "/sessions", "/training_runs", "/get_server_capabilities"):
            assert stranger.get(route).status_code == 401
        for route in ("/create_session", "/retrieve_future", "/forward_backward", "/asample", "/client/config"):
            assert stranger.post(route, content=b"{}").status_code == 401


def test_another_tenants_requests_are_unknown(server: Server) -> None:
    """Would catch ids that work for whoever has them."""
    model_id = server.model(server.session())
    accepted = server.forward_backward(model_id, 1).json()
    other = Server(server.host, server.engine, OTHER_KEY)
    assert other.result(accepted["request_id"]).status_code == 404
    assert other.forward_backward(model_id, 2).status_code == 404
    assert other.http.post("/get_info", json={"model_id": model_id}).status_code == 404
    session_id = model_id.split(":")[0]
    assert other.http.get(f"/sessions/{session_id}").status_code == 404
    other.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
    assert server.forward_backward(model_id, 2).status_code == 200
    other.http.close()


def test_full_queues_answer_429(tmp_path: Path) -> None:
    """Would catch queues without a bound, and a refusal that does not say when to come back."""
    engine = FakeEngine()
    settings = Settings(max_queued_requests=2, max_queued_samples=0, gap_seconds=60.0)
    with hosted(tmp_path, lambda: engine, settings) as host:
        server = Server(host, engine)
        session_id = server.session()
        model_id = server.model(session_id)
        answers = [server.forward_backward(model_id, seq_id) for seq_id in (5, 6, 7)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].headers["retry-after"] == "1"
        num_futures = len(host.service.sequencer.futures)
        sampler = {"session_id": session_id, "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
        sampler_id = server.post("/create_sampling_session", **sampler)["sampling_session_id"]
        sample = {
            "sampling_session_id": sampler_id,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            "sampling_params": {},
        }
        assert server.http.post("/asample", json=sample).status_code == 429
        server.forward_backward(model_id, 7)
        assert len(host.service.sequencer.futures) == num_futures
        server.http.close()


def test_a_tenants_samples_are_counted_while_they_run(tmp_path: Path) -> None:
    """Would catch a tenant that is refused for samples that are done, or for those of its neighbor."""
    engine = HeldSamples()
    with hosted(tmp_path, lambda: engine, Settings(max_queued_samples=2)) as host:
        mine, other = Server(host, engine), Server(host, engine, OTHER_KEY)
        sampler_id, other_sampler_id = (_base_sampler(server) for server in (mine, other))
        running = [_sample(mine, sampler_id).json()["request_id"] for _ in range(2)]
        assert _sample(mine, sampler_id).status_code == 429
        assert _sample(other, other_sampler_id).status_code == 200
        engine.free.set()
        for request_id in running:
            assert mine.result(request_id).headers["content-type"] == "application/x-protobuf"
        assert _sample(mine, sampler_id).status_code == 200
        mine.http.close()
        other.http.close()


def _keyed_session(server: Server, key: str) -> str:
    content: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
    answer = server.http.post("/create_session", json=content, headers={"X-Idempotency-Key": key})
    return str(answer.json()["session_id"])


class HeldSamples(FakeEngine):
    """Advances no sample before it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def step_samples(self) -> Sequence[SampleOutput]:
        return super().step_samples() if self.free.wait(0.001) else ()


def _base_sampler(server: Server) -> str:
    content = {"session_id": server.session(), "sampling_session_seq_id": 0, "base_model": "cookhouse/tiny"}
    return str(server.post("/create_sampling_session", **content)["sampling_session_id"])


def _sample(server: Server, sampler_id: str) -> httpx.Response:
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1]}]}
    content = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": {"max_tokens": 1}}
    return server.http.post("/asample", json=content)


def test_training_results_that_nobody_fetches_are_dropped(tmp_path: Path) -> None:
    """Would catch a client told nothing of why its result is gone, or a step that is undone with it."""
    engine = FakeEngine()
    with hosted(tmp_path, lambda: engine, replace(SETTINGS, max_unfetched_training_bytes=3000)) as host:
        server = Server(host, engine)
        model_id = server.model(server.session())
        accepted = [server.forward_backward(model_id, seq_id).json()["request_id"] for seq_id in range(1, 6)]
        step = server.post("/optim_step", model_id=model_id, seq_id=6, adam_params={"learning_rate": 0.0})
        assert server.result(step["request_id"]).status_code == 200
        first, last = server.result(accepted[0]), server.result(accepted[-1])
        server.http.close()
    assert first.status_code == 404
    assert "more than 3000 bytes of results waited to be fetched" in first.json()["detail"]
    assert last.status_code == 200
    assert [name for name, _ in engine.calls].count("forward_backward") == 5
