"""Workers that the operator adds and drains: who may, what is refused, and that nothing is lost."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.sequencer.test_states import EVERY_STEP
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.engine.contract import Logged
from cookhouse.errors import InputError
from cookhouse.server.pool.plans import plans_of
from cookhouse.server.settings import Settings


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, FakeEngine, plans=plans_of(workers=2)) as host:
        yield host


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, host: Host, key: str = KEY) -> Server:
    server = Server(host, FakeEngine(), key)
    stack.callback(server.close)
    return server


def refusal(server: Server, route: str, content: object = None) -> tuple[int, str]:
    answer = server.http.post(route, json=content)
    return answer.status_code, answer.json()["detail"]


def place_of(host: Host, model_id: str) -> str:
    pool = host.service.pool
    (name,) = [worker.name for worker in pool.workers if model_id in pool.placement.models_of(worker)]
    return name


def test_only_the_first_key_operates_workers(host: Host, stack: ExitStack) -> None:
    """Would catch a tenant that takes the engine from all others."""
    tenant, nobody = connected(stack, host, OTHER_KEY), connected(stack, host, "tml-wrong")
    for route, content in (("/workers", None), ("/workers/worker0/drain", {"seconds": 0})):
        status, detail = refusal(tenant, route, content)
        assert status == 403
        assert "first key" in detail
        assert refusal(nobody, route, content)[0] == 401
    assert [worker.is_draining for worker in host.service.pool.workers] == [False, False]


@pytest.mark.parametrize("content", [{"seconds": -1}, {"seconds": "long"}, {"seconds": 1e999}, None, []])
def test_a_drain_that_makes_no_sense_is_refused(host: Host, stack: ExitStack, content: object) -> None:
    server = connected(stack, host)
    if content == {"seconds": 1e999}:
        answer = server.http.post("/workers/worker0/drain", content=b'{"seconds": 1e999}')
        assert answer.status_code == 400
    else:
        assert refusal(server, "/workers/worker0/drain", content)[0] == 400
    assert [worker.is_draining for worker in host.service.pool.workers] == [False, False]


def test_an_unknown_worker_and_the_last_one_are_refused_in_words(host: Host, stack: ExitStack) -> None:
    server = connected(stack, host)
    status, detail = refusal(server, "/workers/worker9/drain", {})
    assert status == 400
    assert "'worker9'" in detail
    assert "worker0 and worker1" in detail
    server.post("/workers/worker0/drain", seconds=0)
    wait_until(lambda: len(host.service.pool.workers) == 1)
    status, detail = refusal(server, "/workers/worker1/drain", {})
    assert status == 400
    assert "last worker of its kind" in detail


def test_more_workers_than_there_may_be_are_refused(
    host: Host, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cookhouse.server.pool.plans._MAX_WORKERS", 3)
    server = connected(stack, host)
    assert refusal(server, "/workers", {"kind": "manager"})[0] == 400
    assert server.post("/workers", kind="worker")["name"] == "worker2"
    status, detail = refusal(server, "/workers", {})
    assert status == 400
    assert "has 3 workers already" in detail


def test_of_two_drains_at_once_one_is_refused(host: Host) -> None:
    """Would catch two that are each told to go since the other one stays."""
    drain = host.service.requests.workers.drain
    outcomes: list[object] = []

    def both() -> None:
        for name in ("worker0", "worker1"):
            try:
                outcomes.append(drain(name, 0))
            except InputError as error:
                outcomes.append(error)

    host.on_loop(both)
    assert sorted(type(one).__name__ for one in outcomes) == ["InputError", "int"]
    wait_until(lambda: len(host.service.pool.workers) == 1)


def test_a_drained_workers_models_go_on_elsewhere(host: Host, stack: ExitStack) -> None:
    """Would catch a step that is lost with the worker it was done at, and one that is done twice."""
    server = connected(stack, host)
    model_id = server.model(server.session())
    first = place_of(host, model_id)
    server.result(server.forward_backward(model_id, 1).json()["request_id"])
    drained = server.post(f"/workers/{first}/drain", seconds=30)
    assert drained == {"name": first, "num_models": 1, "seconds": 30.0}
    assert server.grad_norm(model_id, 2) > 0, "the gradient of before is there"
    assert place_of(host, model_id) != first
    assert server.grad_norm(model_id, 3) == 0.0


def test_weights_that_were_published_at_a_drained_worker_are_published_once(host: Host, stack: ExitStack) -> None:
    """Would catch a model that fails since its replay publishes what the worker that it comes to has fetched."""
    server = connected(stack, host)
    session_id = server.session()
    model_id = server.model(session_id)
    saved = server.post("/save_weights_for_sampler", model_id=model_id, seq_id=1, sampling_session_seq_id=0)
    sampler_id = server.result(saved["request_id"]).json()["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    request = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": {"max_tokens": 3}}
    server.post(f"/workers/{place_of(host, model_id)}/drain", seconds=30)
    wait_until(lambda: len(host.service.pool.workers) == 1)
    assert server.result(server.post("/asample", **request)["request_id"]).status_code == 200
    assert server.grad_norm(model_id, 2) == 0.0


def test_without_a_journal_models_keep_their_worker(tmp_path: Path, stack: ExitStack) -> None:
    """Would catch a drain that ends what somebody trains."""
    with hosted(tmp_path, FakeEngine, Settings(journal="off"), plans=plans_of(workers=2)) as host:
        server = connected(stack, host)
        model_id = server.model(server.session())
        place = place_of(host, model_id)
        status, detail = refusal(server, f"/workers/{place}/drain", {})
        assert status == 400
        assert f"{place} has 1 model in training, which would be lost, since the journal is off" in detail
        assert server.grad_norm(model_id, 1) == 0.0
        (other,) = {"worker0", "worker1"} - {place}
        assert server.post(f"/workers/{other}/drain", seconds=0)["num_models"] == 0
        wait_until(lambda: len(host.service.pool.workers) == 1)
        assert server.grad_norm(model_id, 2) == 0.0


def test_records_of_several_workers_have_their_names(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a log of which nobody can tell whose lines are whose."""
    caplog.set_level(logging.WARNING, "tests.worker")
    record = Logged(name="tests.worker", level=logging.WARNING, message="low on memory: 100%")
    for worker in host.service.pool.workers:
        host.on_loop(lambda worker=worker: worker._relay(record))  # type: ignore[misc]
    assert [text for name, _, text in caplog.record_tuples if name == "tests.worker"] == [
        "worker0: low on memory: 100%",
        "worker1: low on memory: 100%",
    ]


def test_a_lone_engines_records_have_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = Logged(name="tests.worker", level=logging.WARNING, message="low on memory")
    with hosted(tmp_path, FakeEngine) as host:
        host.on_loop(lambda: host.service.pool.workers[0]._relay(record))
    assert ("tests.worker", logging.WARNING, "low on memory") in caplog.record_tuples


def test_an_added_worker_takes_over_models_of_a_busy_one(tmp_path: Path, stack: ExitStack) -> None:
    """Would catch a worker without work while two models share another, and steps that are lost on the way."""
    with hosted(tmp_path, FakeEngine, EVERY_STEP) as host:
        server = connected(stack, host)
        models = [server.model(server.session()) for _ in range(2)]
        server.post("/workers", kind="worker")
        wait_until(lambda: all(worker.is_up for worker in host.service.pool.workers))
        norms = []
        for seq_id in range(1, 20, 2):
            for model_id in models:
                server.forward_backward(model_id, seq_id)
                norms.append(server.grad_norm(model_id, seq_id + 1))
        assert len(set(norms)) == 1, "each step has the pass of before, once"
        assert {place_of(host, model_id) for model_id in models} == {"engine", "worker1"}


def test_a_model_that_should_move_is_saved_for_that(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a worker without work for as long as states of large models are not due: for many minutes."""
    monkeypatch.setattr("cookhouse.server.sequencer.states._MOVE_COST", 1e9)
    with hosted(tmp_path, FakeEngine, replace(EVERY_STEP, state_cost=1e-9)) as host:
        server = connected(stack, host)
        models = [server.model(server.session()) for _ in range(2)]
        for seq_id in range(1, 20):
            for model_id in models:
                server.grad_norm(model_id, seq_id)
        states = set(tmp_path.rglob("states/*"))
        assert server.grad_norm(models[0], 20) == 0.0
        assert set(tmp_path.rglob("states/*")) == states, "none is due"
        server.post("/workers", kind="worker")
        wait_until(lambda: all(worker.is_up for worker in host.service.pool.workers))
        for seq_id in range(21, 40):
            for model_id in models:
                server.grad_norm(model_id, seq_id)
        assert {place_of(host, model_id) for model_id in models} == {"engine", "worker1"}


def test_weights_that_were_published_before_a_move_outlive_the_worker(tmp_path: Path, stack: ExitStack) -> None:
    """Would catch samples that wait for ever: their weights went with a worker which had their model no more."""
    with hosted(tmp_path, FakeEngine, EVERY_STEP) as host:
        server = connected(stack, host)
        session_id = server.session()
        model_id, _ = server.model(session_id), server.model(server.session())
        saved = server.post("/save_weights_for_sampler", model_id=model_id, seq_id=1, sampling_session_seq_id=0)
        sampler_id = server.result(saved["request_id"]).json()["sampling_session_id"]
        server.post("/workers", kind="worker")
        pool = host.service.pool
        wait_until(lambda: all(worker.is_up for worker in pool.workers))
        host.on_loop(lambda: host.service.supervisor.balance(model_id, 1))
        assert server.grad_norm(model_id, 2) == 0.0
        assert place_of(host, model_id) == "worker1"
        server.post("/workers/engine/drain", seconds=0)
        prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
        request = {"sampling_session_id": sampler_id, "prompt": prompt, "sampling_params": {"max_tokens": 3}}
        assert server.result(server.post("/asample", **request)["request_id"]).status_code == 200
