"""What goes wrong between clients, server and disk: nothing acknowledged is lost, nothing is applied twice."""

import json
import resource
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kills.raw import Raw
from tests.kills.server import KEYS, KeptServer

pytestmark = pytest.mark.slow

SETTINGS = {"gap_seconds": 0.3, "restart_gap_seconds": 0.3}
PATIENT = {**SETTINGS, "gap_seconds": 2.0}
"""Settings with which a request that is to come in time may take its time on a busy machine."""
OFTEN = {**SETTINGS, "state_seconds": 0.0, "state_cost": 1.0}
"""Settings with which every step is followed by a state."""
NUM_ROUNDS = 12
Ended = tuple[Sequence[bytes], Any]
"""Results in the order of their requests, and what has been learned."""


@contextmanager
def serving(folder: Path, settings: dict[str, Any]) -> Iterator[Raw]:
    options = ["--settings", json.dumps(settings)]
    with KeptServer(folder, options, module=["tests.kills.fake_server"]) as server:
        server.wait_until_ready()
        with Raw(server) as raw:
            yield raw


def work(raw: Raw, after: Callable[[int], None] = lambda _: None) -> Ended:
    """Rounds of two passes and a step, nothing fetched before the end.

    `after` is called with the number of each round that has been accepted.
    """
    request_ids, seq_id = [], 0
    for index in range(NUM_ROUNDS):
        for token in (3 * index, 5 * index + 1):
            seq_id += 1
            request_ids.append(raw.send_pass(seq_id, token))
        seq_id += 1
        request_ids.append(raw.send_step(seq_id))
        after(index)
    return [raw.result(each) for each in request_ids], raw.state(seq_id + 1)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What `work` gives where nothing goes wrong."""
    with serving(tmp_path_factory.mktemp("undisturbed"), SETTINGS) as raw:
        return work(raw)


@pytest.mark.parametrize(
    "settings", [pytest.param(SETTINGS, id=""), pytest.param(OFTEN, id="states", marks=pytest.mark.long)]
)
def test_a_kill_in_every_third_round(tmp_path: Path, expected: Ended, settings: dict[str, Any]) -> None:
    """Would catch results that go with the state that covers them, and a request accepted but not written."""
    with serving(tmp_path, settings) as raw:
        server = raw.server

        def kill(index: int) -> None:
            if index % 3 == 2:
                server.wait_for_start(server.kill())

        assert work(raw, kill) == expected
        assert server.exit_codes == [-9] * (NUM_ROUNDS // 3)


def test_the_same_request_five_times(tmp_path: Path, expected: Ended) -> None:
    """At once, one after another, and again after a kill: would catch one that is applied for each copy."""
    with serving(tmp_path, SETTINGS) as raw, ThreadPoolExecutor(5) as threads:

        def repeat(index: int) -> None:
            if index == NUM_ROUNDS // 2:
                raw.server.wait_for_start(raw.server.kill())
            copies = [
                ("forward_backward", raw.passing(3 * index + 1, 3 * index)),
                ("optim_step", raw.stepping(3 * index + 3)),
            ]
            for route, content in copies:
                again = [raw.post(route, content)["request_id"] for _ in range(5)]
                at_once = threads.map(lambda _, route=route, content=content: raw.post(route, content), range(5))
                assert len({*again, *(each["request_id"] for each in at_once)}) == 1

        assert work(raw, repeat) == expected
        # None of these has come before: the five copies are the first.
        body = raw.passing(1000)
        first = threads.map(lambda _: raw.post("forward_backward", body)["request_id"], range(5))
        assert len(set(first)) == 1
        once = json.loads(raw.result(raw.send_step(1001, 0.0)))["metrics"]["grad_norm"]
        raw.send_pass(1002)
        assert json.loads(raw.result(raw.send_step(1003, 0.0)))["metrics"]["grad_norm"] == once


def test_what_ran_out_of_order_runs_so_again(tmp_path: Path) -> None:
    """Would catch a replay by `seq_id`: a request that came too late ran after those that it was meant to precede."""

    def overtaken(raw: Raw, *, is_killed: bool) -> tuple[list[bytes], Any]:
        second = raw.send_step(2, 0.02)
        first = raw.send_pass(1, 7)  # in time: it runs first
        results = [raw.result(first), raw.result(second)]
        fifth = raw.send_pass(5, 9)  # 3 and 4 do not come within its patience
        results.append(raw.result(fifth))
        results.append(raw.result(raw.send_step(6, 0.03)))
        fourth = raw.send_pass(4, 30)  # too late; 3 never comes
        results.append(raw.result(fourth))
        if is_killed:
            raw.server.wait_for_start(raw.server.kill())
            assert [raw.result(each) for each in (first, second, fifth, fourth)] == [*results[:3], results[4]]
        results.append(raw.result(raw.send_step(7, 0.01)))
        return results, raw.state(8)

    outcomes = []
    for is_killed in (False, True):
        with serving(tmp_path / str(is_killed), PATIENT) as raw:
            outcomes.append(overtaken(raw, is_killed=is_killed))
    assert outcomes[0] == outcomes[1]


def test_a_connection_cut_in_the_midst_of_a_body(tmp_path: Path, expected: Ended) -> None:
    """Would catch half a request that is taken for a whole one, now or by a replay."""
    with serving(tmp_path, SETTINGS) as raw:
        host, port = raw.server.url.removeprefix("http://").split(":")

        def cut(index: int) -> None:
            body = raw.passing(3 * (index + 1) + 1, 3 * (index + 1))  # the next that will come
            head = f"POST /api/v1/forward_backward HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {KEYS[0]}\r\n"
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
            if index % 4 == 3:
                raw.server.wait_for_start(raw.server.kill())

        assert work(raw, cut) == expected


def test_a_client_that_is_gone_leaves_its_results_to_another(tmp_path: Path) -> None:
    """Would catch an answer that goes with the connection on which it was asked for."""
    with serving(tmp_path, PATIENT) as raw:
        request_id = raw.send_pass(1, 4)
        polling = httpx.Client(base_url=f"{raw.server.url}/api/v1", headers={"X-API-Key": KEYS[0]}, trust_env=False)
        with polling, pytest.raises(httpx.ReadTimeout):
            polling.post("/retrieve_future", json={"request_id": raw.send_step(3)}, timeout=0.05)
        step_id = raw.send_step(3)
        raw.server.wait_for_start(raw.server.kill())
        with Raw(raw.server) as other:
            assert other.result(request_id)
            assert "metrics" in json.loads(other.result(step_id))


def test_a_database_that_is_locked_now_and_then(tmp_path: Path, expected: Ended) -> None:
    """Would catch a request that is answered before it is written, and a server that is deaf meanwhile."""
    with serving(tmp_path, SETTINGS) as raw:
        is_over = threading.Event()
        num_heard = 0

        def lock() -> None:
            nonlocal num_heard
            file = raw.server.state_dir / "server.db"
            with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as other:
                while not is_over.wait(0.05):
                    other.execute("BEGIN EXCLUSIVE")
                    with suppress(httpx.TransportError):  # it may be the moment of the kill
                        num_heard += httpx.get(f"{raw.server.url}/healthz", trust_env=False).status_code == 200
                    is_over.wait(0.4)
                    other.execute("ROLLBACK")

        def kill(index: int) -> None:
            if index == 5:
                raw.server.wait_for_start(raw.server.kill())

        locking = threading.Thread(target=lock)
        locking.start()
        try:
            assert work(raw, kill) == expected
        finally:
            is_over.set()
            locking.join(60)
        assert num_heard


def test_a_disk_that_is_full_now_and_then(tmp_path: Path, expected: Ended) -> None:
    """No file of the server's can be written to for a while: would catch what is answered and not written."""
    with serving(tmp_path, SETTINGS) as raw, ThreadPoolExecutor(1) as thread:
        server = raw.server

        def limit(num_bytes: int) -> None:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))

        def free() -> None:
            time.sleep(1.0)
            limit(resource.RLIM_INFINITY)

        def fill(index: int) -> None:
            if index in {2, 6}:
                limit(0)
                thread.submit(free)
            if index == 9:
                server.wait_for_start(server.kill())

        assert work(raw, fill) == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here; the same is tested by a limit on the size of files")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_small_disk_that_is_full(small_disk: Path, expected: Ended) -> None:
    """Would catch what only a real full disk does: files that are cut short, and a server that starts on one."""
    with serving(small_disk, SETTINGS) as raw, ThreadPoolExecutor(1) as thread:
        filler = small_disk / "filler"

        def free() -> None:
            time.sleep(1.5)
            filler.unlink()

        def fill(index: int) -> None:
            if index in {2, 5, 8}:
                _fill(filler)
                thread.submit(free)
            if index in {5, 9}:
                raw.server.wait_for_start(raw.server.kill())

        assert work(raw, fill) == expected


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(bytes(4096))
