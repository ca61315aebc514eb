"""Catches copies of checkpoints that are made twice, or that keep everybody else waiting."""

import threading
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from tests.server.leases.conftest import Shared
from tests.server.leases.test_routing import Two, in_thread, save
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.failures import unreachable
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store

KEY = {"X-Idempotency-Key": "k"}


def saved(server: Server) -> dict[str, Any]:
    """What asks for a copy of a checkpoint."""
    return {"source_path": save(server, server.model(server.session()), 1), "destination_project_id": "p"}


def test_a_copy_whose_commit_was_not_answered_is_not_made_again(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a second copy of what is there, whose claim was not finished, or given up."""
    mine, other = two
    wanted = saved(mine)
    put = Store.put_checkpoint

    def put_and_be_cut(store: Store, *arguments: Any, **options: Any) -> CheckpointRow | None:
        monkeypatch.setattr(Store, "put_checkpoint", put)
        put(store, *arguments, **options)
        raise unreachable("it was cut") from OperationalError("COMMIT", None, OSError(), connection_invalidated=True)

    monkeypatch.setattr(Store, "put_checkpoint", put_and_be_cut)
    assert mine.http.post("/copy_weights", json=wanted, headers=KEY).status_code == 503
    paths = {server.http.post("/copy_weights", json=wanted, headers=KEY).json()["tinker_path"] for server in two}
    assert len(paths) == 1
    assert len(other.http.get("/checkpoints").json()["checkpoints"]) == 2


def test_copies_that_take_long_keep_nobody_waiting(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one tenant's copies that take all threads, among them those which write the journal."""
    goes_on, num_begun = threading.Event(), 0
    copy = Checkpoints.copy

    def slow(checkpoints: Checkpoints, *arguments: Any, **options: Any) -> CheckpointRow:
        nonlocal num_begun
        num_begun += 1
        assert goes_on.wait(60)
        return copy(checkpoints, *arguments, **options)

    with shared.server() as server:
        wanted = saved(server)
        monkeypatch.setattr(Checkpoints, "copy", slow)
        copies = [in_thread(server, "/copy_weights", **wanted) for _ in range(40)]
        try:
            wait_until(lambda: num_begun > 1)
            assert server.grad_norm(server.model(server.session()), 1) == 0.0
            assert not any(one.done() for one in copies)
        finally:
            goes_on.set()
        assert len({one.result(60).json()["tinker_path"] for one in copies}) == 40
