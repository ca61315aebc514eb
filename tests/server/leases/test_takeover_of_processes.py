"""Catches work that is lost with the server which held it: killed, paused, or told to stop."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from tests.server.fake_engine import FakeEngine
from tests.server.hosting import KEY, OTHER_KEY, hosted
from tests.server.leases.balancer import balanced
from tests.server.leases.conftest import Process, Start
from tests.server.leases.training import NUM_STEPS, Told, trained
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Told:
    with hosted(tmp_path_factory.mktemp("undisturbed"), FakeEngine) as host:
        return trained(host.url)


def http(server: Process) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/api/v1", headers={"X-API-Key": KEY}, timeout=60, trust_env=False)


def both(start: Start) -> tuple[Process, Process]:
    first, second = start("--slow"), start("--slow")
    return first.wait(), second.wait()


def holder(servers: tuple[Process, ...]) -> Process:
    """The one that holds the only session there is."""
    with closing(http(servers[0])) as client:
        told = client.get("/status").json()["servers"]
    [url] = [row["url"] for row in told if row["num_sessions"]]
    return next(server for server in servers if server.url == url)


def test_a_killed_server_s_session_goes_on_at_the_other(start: Start, undisturbed: Told, record_property: Note) -> None:
    """Would catch a step that is lost or done twice, a request that ends with an error, and weights without files."""
    servers = both(start)
    killed_at: list[float] = []

    def on_step(step: int) -> None:
        if step == NUM_STEPS // 2:
            os.kill(holder(servers).process.pid, signal.SIGKILL)
            killed_at.append(time.monotonic())
        elif len(killed_at) == 1:
            killed_at.append(time.monotonic())

    with balanced([server.port for server in servers]) as url:
        assert trained(url, on_step=on_step) == undisturbed
    record_property("seconds until the next answer", killed_at[1] - killed_at[0])


def test_a_paused_server_commits_nothing_and_ends(start: Start, undisturbed: Told) -> None:
    """Would catch a server that wakes up and answers, or writes, beside the one that took its place."""
    first = start("--slow").wait()
    paused = threading.Event()

    def on_step(step: int) -> None:
        if step == NUM_STEPS // 2:
            os.kill(first.process.pid, signal.SIGSTOP)
            paused.set()

    with balanced([first.port]) as url, ThreadPoolExecutor(1) as threads:
        training = threads.submit(trained, url, on_step=on_step)
        second = start("--slow").wait()
        assert paused.wait(60)
        wait_until(lambda: any("restored 1 models" in text for text in second.said))
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.end() == 75
        assert "another has taken its sessions over" in first.errors
        start("--slow", port=first.port).wait()  # what the client knows of
        assert training.result() == undisturbed


def test_one_server_after_the_other_is_replaced(start: Start, undisturbed: Told) -> None:
    """Would catch a request that an upgrade loses, or answers twice: two tenants train through it."""
    servers = list(both(start))
    num_steps: list[int] = []

    def replace(index: int) -> None:
        port = servers[index].port
        servers[index].process.terminate()
        assert servers[index].end() == 0, servers[index].errors
        servers[index] = start("--slow", port=port).wait()

    with balanced([server.port for server in servers]) as url, ThreadPoolExecutor(2) as threads:
        training = [threads.submit(trained, url, key, 3, num_steps.append) for key in (KEY, OTHER_KEY)]
        wait_until(lambda: len(num_steps) > 4)
        replace(0)
        wait_until(lambda: len(num_steps) > 12)
        replace(1)
        assert [one.result() for one in training] == [undisturbed, undisturbed]
