"""What an operator is told of a server, and what a tenant is."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, hosted
from tests.server.status.conftest import OPERATOR, TENANT, Watched
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine, sample
from tests.server.unwritable import full_disk
from tests.waiting import wait_until

from cookhouse.engine.contract import MemoryUse
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.settings import Settings

NEW_SESSION: dict[str, Any] = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07\u202e</td>"


class Died(BaseException):
    """What no engine answers for."""


class DyingEngine(FakeEngine):
    """Is lost with the first model."""

    def create_model(self, *_: object) -> None:
        raise Died("a tenant's secret")


def texts_of(content: Any) -> Iterator[str]:
    """All texts in JSON, keys aside."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from texts_of(value)


def label(key: str, server: Server) -> str:
    """Without the salt of the server's folder nobody comes from a key to this."""
    keys = server.host.service.keys
    found = keys.label_of(keys.owner_of(key))
    assert found not in (KeyRing([key]).owners[0][:8], KeyRing([key]).label_of(keys.owner_of(key)))
    return found


def save(server: Server, model_id: str, seq_id: int, name: str) -> None:
    saved = server.post("/save_weights", model_id=model_id, seq_id=seq_id, path=name)
    assert server.result(saved["request_id"]).json()["path"].endswith(name)


def test_it_needs_a_key(watched: Watched) -> None:
    with httpx.Client(base_url=watched.host.url, trust_env=False) as http:
        for headers in ({}, {"X-API-Key": "tml-wrong"}, {"Authorization": f"Bearer {KEY}"}):
            answer = http.get("/api/v1/status", headers=headers)
            assert (answer.status_code, list(answer.json())) == (401, ["detail"])


def test_a_tenant_sees_its_own_and_sums_and_never_anothers(watched: Watched) -> None:
    """Would catch a name, an id or a text of one tenant in what another is told, wherever it stands."""
    secrets: dict[str, set[str]] = {}
    for key, server in ((OPERATOR, watched.operator), (TENANT, watched.tenant)):
        name = f"secret of {label(key, server)}"
        session_id = server.post("/create_session", **NEW_SESSION, display_name=name)["session_id"]
        model_id = server.model(session_id)
        save(server, model_id, 1, f"kept-{label(key, server)}")
        sample(server, session_id, 1)
        secrets[key] = {name, session_id, model_id, f"kept-{label(key, server)}", label(key, server)}
    told = list(texts_of(watched.status(TENANT)))
    assert not [text for text in told if any(secret in text for secret in secrets[OPERATOR])]
    for secret in secrets[TENANT]:
        assert any(secret in text for text in told), secret
    all_told = list(texts_of(watched.status(OPERATOR)))
    for secret in secrets[OPERATOR] | secrets[TENANT]:
        assert any(secret in text for text in all_told), secret
    for key in (OPERATOR, TENANT):
        totals = watched.status(key)["totals"]
        assert (totals["num_sessions"], totals["num_models"], totals["num_checkpoints"]) == (2, 2, 2)
        assert totals["checkpoint_bytes"] > 0
        assert totals["tokens_per_second"]["sampled"] > 0
    assert KEY not in "".join(all_told)


def test_the_folder_and_reasons_are_the_operators(watched: Watched) -> None:
    mine, theirs = watched.status(OPERATOR), watched.status(TENANT)
    assert mine["viewer"] == {"tenant": label(OPERATOR, watched.operator), "is_operator": True}
    assert theirs["viewer"] == {"tenant": label(TENANT, watched.tenant), "is_operator": False}
    assert Path(mine["disk"]["folder"]).is_dir()
    assert theirs["disk"]["folder"] is None
    assert theirs["server"]["process_id"] is None
    assert 0 < theirs["disk"]["free_bytes"] <= theirs["disk"]["bytes"]
    assert [one["tenant"] for one in theirs["tenants"]] == [label(TENANT, watched.tenant)]


def test_queues_say_what_waits_what_runs_and_for_how_long(watched: Watched, engine: HeldEngine) -> None:
    """Would catch a queue that is counted only once it has moved, and a turn that is told only when it is over."""
    model_id = watched.operator.model(watched.operator.session())
    engine.free.clear()
    for seq_id in (1, 2, 4):  # the last one waits for the third
        watched.operator.forward_backward(model_id, seq_id)
    wait_until(lambda: (watched.status()["workers"][0]["turn"] or {}).get("kind") == "train")
    status = watched.status()
    (row,) = status["models"]["listed"]
    assert row["num_running"] + row["num_waiting"] == 3
    assert row["num_running"] >= 2
    assert 0 <= row["oldest_seconds"] < 60
    (running,) = status["workers"][0]["turn"]["running"]
    assert running == {"command": "Pass", "tenant": label(OPERATOR, watched.operator), "model_id": model_id}
    theirs = watched.status(TENANT)
    assert theirs["workers"][0]["turn"]["running"] == [{"command": "Pass", "tenant": None, "model_id": None}]
    assert theirs["models"] == {"listed": [], "num_left_out": 0}
    assert status["totals"]["num_running"] == row["num_running"]
    assert theirs["totals"]["num_running"] >= row["num_running"]  # the last one waits for a second only


def test_samples_stand_by_tenant_and_base_model(watched: Watched, engine: HeldEngine) -> None:
    engine.free.clear()
    ids = sample(watched.operator, watched.operator.session(), 3)
    (row,) = watched.status()["samples"]
    assert (row["tenant"], row["base_model"], row["num_requests"]) == (
        label(OPERATOR, watched.operator),
        "cookhouse/tiny",
        3,
    )
    assert 0 <= row["oldest_seconds"] < 60
    assert watched.status(TENANT)["samples"] == []
    engine.free.set()
    for request_id in ids:
        watched.operator.result(request_id)
    assert watched.status()["samples"] == []


def test_a_lost_engine_is_told_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch an operator who has to read a log to learn that the engine died, and of what."""
    caplog.set_level(logging.CRITICAL, "cookhouse")
    engines = iter([DyingEngine(), FakeEngine()])
    with hosted(tmp_path, lambda: next(engines)) as host:
        watched = Watched(host, HeldEngine())
        assert watched.status()["workers"][0]["num_losses"] == 0
        watched.operator.model(watched.operator.session())
        mine, theirs = watched.status(), watched.status(TENANT)
        watched.operator.close()
        watched.tenant.close()
    assert mine["workers"][0]["is_up"]
    assert mine["workers"][0]["num_losses"] == 1
    assert mine["workers"][0]["last_loss"]["reason"] == "its loop failed: Died: a tenant's secret"
    assert theirs["workers"][0]["last_loss"]["reason"] is None
    assert any("a tenant's secret" in trouble for trouble in mine["troubles"])
    assert any("was lost" in trouble for trouble in theirs["troubles"])


def test_a_store_that_is_full_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a status that fails with the disk that it shall tell of."""
    caplog.set_level(logging.CRITICAL, "cookhouse")
    with hosted(tmp_path, FakeEngine, Settings(store_patience_seconds=0.2)) as host:
        watched = Watched(host, HeldEngine())
        before = watched.status()["journal"]
        assert (before["failure"], before["failing_seconds"]) == (None, None)
        with full_disk():
            assert watched.operator.http.post("/create_session", json=NEW_SESSION).status_code == 503
            status = watched.status()
        watched.operator.session()
        after = watched.status()["journal"]
        watched.operator.close()
        watched.tenant.close()
    assert "disk is full" in status["journal"]["failure"]
    assert any("Nothing has been written" in trouble for trouble in status["troubles"])
    assert after["failure"] is None
    assert after["last_commit_seconds_ago"] < 60


def test_hostile_names_are_data(watched: Watched) -> None:
    """Would catch a name that breaks the JSON, or goes on without a bound."""
    hostile = HOSTILE + "x" * 100_000
    watched.operator.post("/create_session", **{**NEW_SESSION, "sdk_version": hostile}, display_name=hostile)
    (row,) = watched.status()["sessions"]["listed"]
    assert row["name"] == hostile[:200]
    assert row["sdk_version"] == hostile[:100]


def test_paths_of_strangers_have_one_row(watched: Watched) -> None:
    """Would catch latencies that grow with what anybody asks for, and that show it."""
    for index in range(20):
        watched.operator.http.get(f"/nothing/{index}")
        watched.operator.http.get(f"{watched.host.url}/v1/models/secret-{index}")
    routes = {row["route"]: row for row in watched.status(TENANT)["requests"]["routes"]}
    assert routes["other"]["number"] == routes["other"]["num_refused"] == 20
    assert routes["GET /v1/models/{name:path}"]["num_refused"] == 20
    assert not [route for route in routes if "secret" in route or "nothing" in route]


def test_a_server_that_drains_says_so(watched: Watched) -> None:
    watched.host.on_loop(watched.host.service.draining.begin)
    status = watched.status()
    assert status["server"]["draining"]["is_draining"]
    assert status["troubles"] == ["The server accepts no requests: the server is stopping."]


def test_without_a_journal_there_is_none(tmp_path: Path) -> None:
    with hosted(tmp_path, FakeEngine, Settings(journal="off")) as host:
        watched = Watched(host, HeldEngine())
        watched.operator.model(watched.operator.session())
        status = watched.status()
        watched.operator.close()
        watched.tenant.close()
    assert status["journal"] is None
    assert status["server"]["settings"]["journal"] == "off"


def test_many_who_look_are_one_question_to_the_engine(
    watched: Watched, engine: HeldEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch pages that slow the engine down, each a little."""
    asked: list[int] = []

    def memory_use() -> MemoryUse:
        asked.append(1)
        return MemoryUse()

    monkeypatch.setattr(engine, "memory_use", memory_use)
    watched.status()
    monkeypatch.setattr("cookhouse.server.status.worker_watch._AGAIN_SECONDS", 3600.0)
    for _ in range(10):
        assert watched.status()["workers"][0]["status_age_seconds"] >= 0
    assert len(asked) == 1
