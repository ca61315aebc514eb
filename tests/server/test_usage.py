"""What was used, by session and by tenant: exact tokens, kept over restarts, told to nobody else."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.storage.store.test_database import damage_pages, new_store
from tests.server.test_routes import Server
from tests.server.unwritable import locked_database

from cookhouse.engine.contract import Account, Amount
from cookhouse.runs import History, Launch
from cookhouse.runs.history.facts import usage_text
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.pool.meter import Meter, Metering
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.usage import Usage
from cookhouse.training import TrainingSession, connect_to

TOKENS = ("trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosted(tmp_path, FakeEngine) as host:
        yield host


@pytest.fixture
def connect() -> Iterator[Callable[..., Server]]:
    """Connections of tenants, closed at the end."""
    with ExitStack() as stack:

        def open_one(host: Host, key: str = KEY) -> Server:
            server = Server(host, FakeEngine(), key)
            stack.callback(server.http.close)
            return server

        yield open_one


def used(server: Server, session_id: str) -> tuple[int, ...]:
    content = server.http.get(f"/sessions/{session_id}/usage").json()
    return tuple(content[name] for name in TOKENS)


def sample(server: Server, session_id: str, *, prompt: list[int], num_samples: int, max_tokens: int) -> None:
    made = server.post(
        "/create_sampling_session", session_id=session_id, sampling_session_seq_id=0, base_model="cookhouse/tiny"
    )
    asked: dict[str, Any] = {
        "sampling_session_id": made["sampling_session_id"],
        "seq_id": 1,
        "num_samples": num_samples,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompt}]},
        "sampling_params": {"max_tokens": max_tokens, "stop": [], "seed": 1},
    }
    assert server.result(server.post("/asample", **asked)["request_id"]).status_code == 200


def test_tokens_are_those_that_a_session_sent(host: Host, connect: Callable[..., Server]) -> None:
    # Catches tokens that are counted twice for a request sent again, or put down to another session or tenant.
    mine, others = connect(host), connect(host, OTHER_KEY)
    session_id, second, foreign = mine.session(), mine.session(), others.session()
    model_id = mine.model(session_id)
    for seq_id in (1, 2, 2):
        mine.result(mine.forward_backward(model_id, seq_id).json()["request_id"])
    mine.grad_norm(model_id, 3)
    sample(mine, session_id, prompt=[1, 2, 3], num_samples=4, max_tokens=5)
    sample(others, foreign, prompt=[1, 2], num_samples=1, max_tokens=6)
    assert used(mine, session_id) == (4, 0, 3, 20)
    assert used(mine, second) == (0, 0, 0, 0)
    assert used(others, foreign) == (0, 0, 2, 6)
    assert used(others, session_id) == (0, 0, 0, 0), "another tenant's"
    whole = mine.http.get("/usage").json()
    assert tuple(whole[name] for name in TOKENS) == (4, 0, 3, 20)
    assert whole["engine_seconds"] > 0


def test_a_failed_request_has_no_tokens(host: Host, connect: Callable[..., Server]) -> None:
    server = connect(host)
    session_id = server.session()
    sample(server, session_id, prompt=[1] * 200, num_samples=1, max_tokens=5)  # longer than the model takes
    assert used(server, session_id) == (0, 0, 0, 0)


def test_it_survives_a_restart_and_adds_up(tmp_path: Path, connect: Callable[..., Server]) -> None:
    # Catches counts that live in the process, and a second start that counts the first again.
    for round_ in (1, 2):
        with hosted(tmp_path, FakeEngine) as host:
            server = connect(host)
            sample(server, server.session(), prompt=[1, 2], num_samples=1, max_tokens=3)
            whole = server.http.get("/usage").json()
            assert (whole["prompt_tokens"], whole["sampled_tokens"]) == (2 * round_, 3 * round_)


def test_what_runs_again_after_a_restart_counts_once(tmp_path: Path, connect: Callable[..., Server]) -> None:
    """Would catch a tenant that pays for the passes which a server makes again when it is started."""
    with hosted(tmp_path, FakeEngine) as host:
        server = connect(host)
        session_id = server.session()
        model_id = server.model(session_id)
        server.result(server.forward_backward(model_id, 1).json()["request_id"])
        before = used(server, session_id)
    assert before == (4 // 2, 0, 0, 0)
    with hosted(tmp_path, FakeEngine) as host:
        server = connect(host)
        server.result(server.forward_backward(model_id, 2).json()["request_id"])
        assert used(server, session_id) == (4, 0, 0, 0)
        assert server.http.get("/usage").json()["trained_tokens"] == 4
        server.post(f"/sessions/{session_id}/finish", reason={"type": "success"})
        assert used(server, session_id) == (4, 0, 0, 0)


def test_a_request_counts_once() -> None:
    """Would catch a replay that counts again, and what is handed on counting at two servers."""
    meter, account = Meter(), Account("a", "s")
    for _ in range(2):
        meter.hold("1", [Amount(account, "trained_tokens", 3)])
    meter.hold("2", [Amount(account, "trained_tokens", 5)])
    assert meter.held() == {account: Usage(trained_tokens=8)}
    assert meter.take() == {}
    meter.settle(["1"])
    meter.let_go(["2"])
    assert meter.take() == {account: Usage(trained_tokens=3)}
    assert meter.held() == {}


def test_metrics_are_for_prometheus_and_tell_no_key(host: Host, connect: Callable[..., Server]) -> None:
    # Catches labels without a bound, a key among them, and a text that Prometheus cannot read.
    server = connect(host)
    sample(server, server.session(), prompt=[1, 2], num_samples=2, max_tokens=3)
    gone = ("0" * 32, "session of a key that is no longer one")
    host.service.storage.store.add_usage(
        {gone: Usage(trained_tokens=7), ("1" * 32, "another"): Usage(trained_tokens=2)}
    )
    answer = httpx.get(f"{host.url}/metrics", trust_env=False)
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    tenant, other = (host.service.keys.label_of(owner) for owner in host.service.keys.owners)
    assert tenant != KeyRing([KEY]).label_of(host.service.keys.owners[0]), "no key can be tried by it"
    assert f'cookhouse_tokens_total{{kind="prompt",tenant="{tenant}"}} 2.0' in lines
    assert f'cookhouse_tokens_total{{kind="sampled",tenant="{tenant}"}} 6.0' in lines
    assert f'cookhouse_tokens_total{{kind="sampled",tenant="{other}"}} 0.0' in lines
    assert 'cookhouse_tokens_total{kind="trained",tenant="other"} 9.0' in lines
    assert "cookhouse_sessions 1.0" in lines
    assert KEY not in answer.text
    assert len([line for line in lines if line.startswith("cookhouse_tokens_total")]) == 3 * 4


def test_metrics_are_there_while_the_store_is_locked(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch gauges of the journal and of workers that are gone just when somebody needs them."""
    monkeypatch.setattr("cookhouse.server.status.metrics._PATIENCE_SECONDS", 0.1)
    with locked_database(tmp_path):
        host.service.meter.count([Amount(Account("a", "s"), "sampled_tokens", 3)])
        answer = httpx.get(f"{host.url}/metrics", trust_env=False)
    assert answer.status_code == 200
    assert "cookhouse_journal_waiting 0.0" in answer.text
    assert "cookhouse_tokens_total" not in answer.text


def test_health_needs_no_key(host: Host) -> None:
    assert httpx.get(f"{host.url}/healthz", trust_env=False).json() == {"status": "ok"}
    assert httpx.get(f"{host.url}/readyz", trust_env=False).status_code == 200
    host.on_loop(host.service.dismiss_waiters)
    answer = httpx.get(f"{host.url}/readyz", trust_env=False)
    assert (answer.status_code, answer.json()["detail"]) == (503, "the server is stopping")


def test_a_server_whose_database_is_damaged_is_not_ready(tmp_path: Path, connect: Callable[..., Server]) -> None:
    """Would catch a supervisor that sends clients to a server that can list nothing."""
    new_store(tmp_path / "server.db")
    with hosted(tmp_path, FakeEngine) as host:
        damage_pages(tmp_path / "server.db", "ix_sessions_owner")
        ready = httpx.get(f"{host.url}/readyz", trust_env=False)
        listed = connect(host).http.get("/sessions")
        assert httpx.get(f"{host.url}/healthz", trust_env=False).status_code == 200
    assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
    assert ready.json()["detail"].startswith("the service's database is damaged")
    assert (listed.status_code, listed.json()["detail"]) == (400, ready.json()["detail"])


def test_what_cannot_be_written_is_counted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Catches counts that are lost, or counted twice, where the database is busy.
    meter, store = Meter(), Store(tmp_path / "server.db")
    metering = Metering(meter, store)
    meter.count([Amount(Account("a", "s"), "sampled_tokens", 3)])

    def busy(_used: object) -> None:
        raise StorageError("busy")

    with monkeypatch.context() as patched:
        patched.setattr(store, "add_usage", busy)
        with pytest.raises(StorageError):
            metering.flush()
    assert metering.of_session("s", "a") == Usage(sampled_tokens=3)
    assert metering.of_session("s", "a") == Usage(sampled_tokens=3)
    store.close()


@pytest.mark.anyio
async def test_a_client_is_told_of_its_session(host: Host) -> None:
    # Catches a client that is told of another session, and counts that are not those of the server.
    service = await connect_to(host.url, KEY)()
    client = await service.create_lora_training_client("cookhouse/tiny", rank=4)
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": tinker.TensorData(data=[2, 3, 4], dtype="int64", shape=[3])},
    )
    await (await asyncio.to_thread(client.forward_backward, [datum, datum], "cross_entropy"))
    await (await asyncio.to_thread(client.forward, [datum], "cross_entropy"))
    session = TrainingSession(service=service, client=client, context_tokens=None)
    counted = await session.usage()
    assert counted is not None
    assert [counted[name] for name in TOKENS] == [6, 3, 0, 0]
    await session.close("success")


def test_launches_add_up() -> None:
    # Catches a resumed run that has only what it used since.
    now = datetime.now(UTC)
    told = [Launch(started_at=now, ended_at=now, usage={"trained_tokens": 1_200, "engine_seconds": 1.5})]
    killed = Launch(started_at=now, ended_at=now)
    history = History(launches=[*told, killed, *told], is_running=False)
    assert history.usage == {"trained_tokens": 2_400, "engine_seconds": 3.0}
    assert usage_text(history.usage) == "2,400 tokens trained; 3 s of the engine"
    assert History(launches=[killed], is_running=False).usage is None
