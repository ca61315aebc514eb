"""A database that another program has locked, as a copy of it does: who needs no row of it waits for nobody."""

from pathlib import Path

import pytest
from tests.server.hosting import hosted
from tests.server.test_routes import Server
from tests.server.test_silence import HeldEngine, sample
from tests.server.unwritable import locked_database
from tests.waiting import wait_until

from cookhouse.server.settings import Settings
from cookhouse.server.storage.store import database


@pytest.fixture(params=[30.0, 0.2], ids=["patient", "impatient"])
def patience_seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long the server waits for the lock: longer than it is held, or shorter."""
    monkeypatch.setattr(database, "_BUSY_SECONDS", request.param)
    return float(request.param)


def test_samples_and_steps_go_on_and_saves_wait_or_fail(tmp_path: Path, patience_seconds: float) -> None:
    """Would catch an engine, or the server's loop, that waits for a row."""
    engine = HeldEngine()
    settings = Settings(store_patience_seconds=patience_seconds)
    with hosted(tmp_path, lambda: engine, settings) as host:
        server = Server(host, engine)
        session_id = server.session()
        (drawing,) = sample(server, session_id, 1)
        trainer, other = server.model(session_id), server.model(server.session())
        accepted = []
        for model_id in (trainer, other):
            accepted += [server.forward_backward(model_id, seq_id).json()["request_id"] for seq_id in (1, 3)]
        wait_until(lambda: engine.calls[-1][0] == "begin")
        saves = {"/save_weights": trainer, "/save_weights_for_sampler": other}
        for route, model_id in saves.items():
            content = {"model_id": model_id, "seq_id": 2, "path": "new"}
            accepted.append(server.post(route, **content)["request_id"])
        *others, save, publish = accepted
        with locked_database(tmp_path):
            engine.free.set()
            for request_id in (*others, drawing):
                assert "error" not in server.result(request_id).text
            if patience_seconds < 1:
                for refused in (save, publish):
                    told = server.result(refused).json()
                    assert told["category"] == "server"
                    assert "locked by another program for 0.2 s; try again" in told["error"]
                host.on_loop(host.service.sweeper.sweep)
            assert server.http.get("/checkpoints").json()["checkpoints"] == []
        if patience_seconds < 1:
            content = {"seq_id": 4, "path": "new"}
            again = [server.post(route, model_id=model_id, **content) for route, model_id in saves.items()]
            save, publish = (one["request_id"] for one in again)
        paths = {server.result(request_id).json()["path"] for request_id in (save, publish)}
        listed = server.http.get("/checkpoints").json()["checkpoints"]
        assert {checkpoint["tinker_path"] for checkpoint in listed} == paths
        assert len(list((tmp_path / "checkpoints").iterdir())) == 2
        server.http.close()
