"""Servers whose status is made anew for each who asks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.hosting import KEY, OTHER_KEY, Host, hosted
from tests.server.test_routes import Server
from tests.server.test_silence import SETTINGS, HeldEngine

OPERATOR, TENANT = KEY, OTHER_KEY


class Watched:
    """A server, its operator's connection and a tenant's."""

    def __init__(self, host: Host, engine: HeldEngine) -> None:
        self.host, self.engine = host, engine
        self.operator, self.tenant = Server(host, engine, OPERATOR), Server(host, engine, TENANT)

    def status(self, key: str = OPERATOR) -> dict[str, Any]:
        answer = (self.operator if key == OPERATOR else self.tenant).http.get("/status")
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content


@pytest.fixture(autouse=True)
def _always_new(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_AGAIN_SECONDS", "_DISK_SECONDS", "_STORE_SECONDS", "_ROUTES_SECONDS"):
        monkeypatch.setattr(f"cookhouse.server.status.status.{name}", 0.0)
    monkeypatch.setattr("cookhouse.server.status.worker_watch._AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("cookhouse.server.status.metrics._USAGE_SECONDS", 0.0)
    for module in ("cached", "metrics", "worker_watch"):
        monkeypatch.setattr(f"cookhouse.server.status.{module}._PATIENCE_SECONDS", 30.0)


@pytest.fixture
def engine() -> HeldEngine:
    engine = HeldEngine()
    engine.free.set()
    return engine


@pytest.fixture
def watched(tmp_path: Path, engine: HeldEngine) -> Iterator[Watched]:
    with hosted(tmp_path, lambda: engine, SETTINGS) as host, contextlib.ExitStack() as stack:
        watched = Watched(host, engine)
        for server in (watched.operator, watched.tenant):
            stack.callback(server.close)
        stack.callback(engine.free.set)
        yield watched
