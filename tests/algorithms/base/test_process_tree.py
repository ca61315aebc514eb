"""What is counted of a process is counted of those below it, too: the work of an engine is done in a grandchild."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench.rl import StepSpans

from cookhouse.algorithms.base import estimate
from cookhouse.algorithms.base.process_tree import cpu_seconds, own_cpu_seconds, peak_bytes, tree
from cookhouse.telemetry import Span

WORK = """
import json, threading, time
held = bytearray(b"x") * (80 << 20)
del held
def burn():
    while time.process_time() < 0.2:
        sum(range(1000))
threads = [threading.Thread(target=burn) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([time.process_time(), int(peak) * 1024]), flush=True)
input()
"""
SERVER = f"import subprocess, sys; subprocess.run([sys.executable, '-Sc', {WORK!r}], start_new_session=True)"


@contextmanager
def started(*command: str) -> Iterator[tuple[subprocess.Popen[str], float, int]]:
    """A process whose child, in a session of its own, has worked; seconds and peak memory as the child says them."""
    with subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        seconds, peak = json.loads(server.stdout.readline())
        yield server, seconds, peak
        server.communicate("\n")


def test_a_grandchild_counts() -> None:
    """Catches a bench that counts client and server, and not the engine, in seconds and in bytes."""
    before, spans = cpu_seconds(os.getpid()), StepSpans()
    with started(sys.executable, "-Sc", SERVER) as (server, seconds, peak):
        # A tick is a hundredth of a second, and each of the two processes may have lost one.
        assert cpu_seconds(server.pid) >= seconds - 0.02
        assert cpu_seconds(os.getpid()) - before >= seconds - 0.02
        assert own_cpu_seconds(server.pid) < seconds
        assert (peak_bytes(tree(server.pid)) or 0) >= peak
        spans.write(Span(name="optim_step", start_seconds=0.0, end_seconds=1.0))
        assert spans.cpu_seconds[0] - before >= seconds - 0.02
    assert cpu_seconds(os.getpid()) - before >= seconds - 0.02  # also once it has ended


def test_the_memory_of_a_run_is_that_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an estimate that names the HTTP server's memory as the engine's: people size a machine by it."""
    monkeypatch.setattr(estimate, "SERVICE", "-Sc")  # an argument of the command below
    before = estimate.peak_memory()
    with started(sys.executable, "-Sc", SERVER) as (_, _, peak):
        found = estimate.peak_memory()
    assert "engine_memory_bytes" not in before
    assert peak <= found["engine_memory_bytes"] < 3 * peak
    assert found["memory_bytes"] < before["memory_bytes"] + peak / 2
