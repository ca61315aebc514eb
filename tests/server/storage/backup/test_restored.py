"""Catches a backup that lists what it has and cannot be gone on with."""

import shutil
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import OTHER_KEY, hosted
from tests.server.test_routes import Server
from tests.waiting import wait_until

from cookhouse.server.settings import Settings
from cookhouse.server.storage.backup.backup import back_up


def unheard(_: str) -> None:
    pass


def step(server: Server, model_id: str, seq_id: int) -> float:
    """A pass and a step of it; the norm of its gradient depends on all steps before."""
    server.forward_backward(model_id, seq_id)
    adam = {"learning_rate": 0.5}
    accepted = server.post("/optim_step", model_id=model_id, seq_id=seq_id + 1, adam_params=adam)
    return float(server.result(accepted["request_id"]).json()["metrics"]["grad_norm"])


def sample(server: Server, sampler_id: str) -> httpx.Response:
    accepted = server.post(
        "/asample",
        sampling_session_id=sampler_id,
        num_samples=1,
        prompt={"chunks": [{"type": "encoded_text", "tokens": [1]}]},
        sampling_params={"max_tokens": 1, "stop": []},
    )
    return server.result(accepted["request_id"])


@pytest.mark.parametrize("settings", [Settings(), Settings(state_seconds=0.0)], ids=["requests", "states"])
def test_live_sessions_go_on_elsewhere(tmp_path: Path, settings: Settings) -> None:
    old, copy, new = (tmp_path / name for name in ("old", "copy", "new"))
    old.mkdir()
    engine = FakeEngine()
    with hosted(old, lambda: engine, settings) as host, closing(Server(host, engine)) as server:
        model_id = server.model(server.session())
        server.post("/save_weights", model_id=model_id, seq_id=1, path="first")
        step(server, model_id, 2)
        saved = server.post("/save_weights_for_sampler", model_id=model_id, seq_id=4, sampling_session_seq_id=0)
        sampler_id = server.result(saved["request_id"]).json()["sampling_session_id"]
        unfetched = server.post("/optim_step", model_id=model_id, seq_id=5, adam_params={"learning_rate": 0.0})
        if not settings.state_seconds:
            wait_until(lambda: any((old / "states").glob("[0-9a-f]*")))
        assert back_up(old, copy, say=unheard) == []
        expected = step(server, model_id, 6)  # not in the backup: the client sends it again
    shutil.rmtree(old)
    copy.rename(new)
    engine = FakeEngine()
    with (
        hosted(new, lambda: engine, settings) as host,
        closing(Server(host, engine)) as server,
        closing(Server(host, engine, OTHER_KEY)) as other,
    ):
        assert "metrics" in server.result(unfetched["request_id"]).json()
        assert step(server, model_id, 6) == expected
        assert sample(server, sampler_id).headers["content-type"] == "application/x-protobuf"
        path = f"tinker://{model_id}/weights/first"
        loaded = server.post("/load_weights", model_id=model_id, seq_id=8, path=path, optimizer=True)
        assert "error" not in server.result(loaded["request_id"]).json()
        assert other.result(unfetched["request_id"]).status_code == 404
