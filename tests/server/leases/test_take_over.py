"""Catches work that is lost with the server which held it: killed, paused, or told to stop."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.contract.calls import ADAM, datum
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, hosted
from tests.server.leases.conftest import Process, Shared, Start
from tests.server.leases.training import NUM_STEPS, Told, trained

assert ADAM, datum
SECONDS = "took over after {:.1f} s\n"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Told:
    with hosted(tmp_path_factory.mktemp("undisturbed"), FakeEngine) as host:
        return trained(host.url)


def http(server: Process) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/api/v1", headers={"X-API-Key": KEY}, timeout=60, trust_env=False)


def test_a_killed_server_s_sessions_go_on_at_the_other(start: Start, undisturbed: Told) -> None:
    """Would catch a step that is lost or done twice, a checkpoint without files, and weights of samplers that are gone.

    The client is connected to the server that lives: what it asks of the other's session is sent on there.
    """
    first, second = start("--slow"), start("--slow")
    first.wait(), second.wait()
    with closing(http(first)) as client:
        begun = {"tags": [], "user_metadata": None, "sdk_version": "0.38.0"}
        session = client.post("/create_session", json=begun, headers={"X-Idempotency-Key": "k"}).json()["session_id"]
    killed_at: list[float] = []
    back_at: list[float] = []

    def on_step(step: int) -> None:
        if step == NUM_STEPS // 2:
            os.kill(first.process.pid, signal.SIGKILL)
            killed_at.append(time.monotonic())
        elif killed_at and not back_at:
            back_at.append(time.monotonic())

    with closing(http(second)) as client:
        again = client.post("/create_session", json=begun, headers={"X-Idempotency-Key": "k"}).json()["session_id"]
        assert again == session, "a copy of the request began another session"
    del on_step
