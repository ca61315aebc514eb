"""Catches an event loop that waits for the shared folder, which may hang for minutes: nobody is answered meanwhile."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.leases.conftest import SETTINGS, Shared
from tests.server.leases.test_routing import save
from tests.server.test_routes import Server
from tests.waiting import wait_until

ASKED = ("exists", "is_dir", "is_file", "stat", "iterdir")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of files in event loops from now on."""
    found: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(path: Path, *arguments: Any, **options: Any) -> Any:
            if _is_in_loop():
                found.append(f"{name} of {path}")
            return function(path, *arguments, **options)

        return noted

    for name in ASKED:
        monkeypatch.setattr(Path, name, noting(name, getattr(Path, name)))
    return found


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def trained(server: Server) -> None:
    """All that touches folders: states, files of published weights, a save, and a load of it."""
    session_id = server.session()
    model_id = server.model(session_id)
    published = {"model_id": model_id, "seq_id": 1, "sampling_session_seq_id": 0}
    server.result(server.post("/save_weights_for_sampler", **published)["request_id"])
    assert server.result(server.forward_backward(model_id, 2).json()["request_id"]).status_code == 200
    assert server.grad_norm(model_id, 3) > 0
    path = save(server, model_id, 4)
    loading = server.post("/load_weights", model_id=model_id, seq_id=5, path=path, optimizer=True)["request_id"]
    assert server.result(loading).json()["path"] == path


@pytest.mark.parametrize("is_remote", [False, True])
def test_the_event_loop_waits_for_no_folder(shared: Shared, asked: list[str], *, is_remote: bool) -> None:
    settings = replace(SETTINGS, state_seconds=0.0, state_cost=1.0)
    if is_remote:
        settings = replace(settings, checkpoints=(shared.folder / "store").as_uri())
    with shared.server(settings) as server:
        asked.clear()  # a start may
        trained(server)
        wait_until(lambda: any((shared.folder / "shared" / "states").iterdir()))
        wait_until(lambda: any((shared.folder / "shared" / "samplers").iterdir()))
        in_folder = [what for what in asked if str(shared.folder) in what]
    assert in_folder == []
