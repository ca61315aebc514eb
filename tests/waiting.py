"""Waits that end: what never comes fails the test, instead of holding it."""

import subprocess
import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 120.0


def wait_until(is_so: Callable[[], object], patience: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; one that prints none for long is killed, and the line is empty."""
    assert process.stdout is not None
    killer = threading.Timer(PATIENCE_SECONDS, process.kill)
    killer.start()
    try:
        return process.stdout.readline()
    finally:
        killer.cancel()
