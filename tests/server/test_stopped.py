"""Processes that stand still for longer than silence may last, by real signals: SIGSTOP, and SIGCONT later."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.server.test_process import process
from tests.waiting import next_line, wait_until

from cookhouse.algorithms.base.process_tree import tree

pytestmark = pytest.mark.slow
LIMIT_SECONDS = 6.0
CLIENT = Path(__file__).with_name("stopped_client.py")


@contextmanager
def stopped(pids: list[int], seconds: float) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("who", "is_own", "goes_on"),
    [
        pytest.param("server", False, True, marks=pytest.mark.long),
        pytest.param("engine", False, True, marks=pytest.mark.long),
        ("server and engine and client", False, True),  # as a machine that is suspended, or starved
        ("client", True, True),
        ("client", False, False),
    ],
)
def test_silence_is_the_clients_only_while_the_server_was_awake(
    tmp_path: Path, who: str, is_own: bool, goes_on: bool
) -> None:
    """Would catch a session that ends while its client is alive, and a client that waits when its session has ended."""
    words = ["-m", "cookhouse.server", "--state-dir", str(tmp_path), "--json", "--device", "cpu", "--watch-stdin"]
    words += ["--precision", "float32", "--session-minutes", str(LIMIT_SECONDS / 60), "--silent-minutes", "0.05"]
    words += ["--end-sessions", "eof"] * is_own
    with process(words, COOKHOUSE_API_KEYS="tml-key") as server:
        url = json.loads(next_line(server))["url"]
        with process([str(CLIENT), url]) as client:
            for _ in range(3):
                assert next_line(client) == "step\n"
            engines = tree(server.pid)[1:]
            assert engines
            pids = {"server": [server.pid], "engine": engines, "client": [client.pid]}
            # A client's silence is seen by the sweep after it, of which one comes every ten seconds.
            seconds = 2 * LIMIT_SECONDS + (12.0 if who == "client" else 0.0)
            with stopped([pid for each in who.split(" and ") for pid in pids[each]], seconds):
                pass
            began = time.monotonic()
            said = [next_line(client)]
            while said[-1] == "step\n" and time.monotonic() - began < 15:
                said.append(next_line(client))
            if goes_on:
                assert said[-1] == "step\n"
                assert len(said) > 20
                return
            assert said[-1].startswith("ServiceError: "), said[-1]
            assert "session has ended" in said[-1]
            assert time.monotonic() - began < 10, "it says so at once"
            wait_until(lambda: client.poll() is not None)
