"""Catches two engines on one core, cores left unused, and an engine that does not start where a system tells less."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from cookhouse.engine import device as device_module
from cookhouse.engine import processors, share, torch_engine
from cookhouse.engine.__main__ import _engine
from cookhouse.engine.contract import WorkerOptions
from cookhouse.engine.control_groups import ControlGroups
from cookhouse.engine.kernels.cpu import cpu_kernels
from tests.waiting import next_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads")
_CORES = sorted(os.sched_getaffinity(0))
_PREFIX = f"test-{os.getpid()}"
"""Of the names that these tests claim, apart from those of engines that may run beside them."""


@pytest.fixture(autouse=True)
def names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hold = share._hold
    monkeypatch.setattr(share, "_hold", lambda name: hold(f"{_PREFIX}/{name}"))
    monkeypatch.setattr(share, "_claims", [])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield
    for claim in share._claims:
        claim.close()


def _quota(monkeypatch: pytest.MonkeyPatch, num_cores: float | None) -> None:
    monkeypatch.setattr(ControlGroups, "num_cores", lambda _: num_cores)


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.2, 1), (1.0, 1), (1.5, 2), (3.0, 3), (64.0, 8)])
def test_threads_follow_cores_and_quota(quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch sixty-four threads on two cores' worth of time: they are stopped together, mid-pass."""
    monkeypatch.setattr(share, "allowed_cores", lambda: list(range(8)))
    _quota(monkeypatch, quota)
    assert share.num_threads() == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert share.num_threads() == 5


@pytest.mark.parametrize("error", [AttributeError, OSError])
def test_cores_are_found_without_affinity(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert processors.allowed_cores() == list(range(6))
    if error is AttributeError:
        monkeypatch.delattr(os, "sched_getaffinity")
        assert processors.allowed_cores() == list(range(6))
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.allowed_cores() == [0]


def test_cores_are_not_claimed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    _quota(monkeypatch, None)
    monkeypatch.setattr(share, "_PATIENCE_SECONDS", 0.0)
    assert not share.claim_cores()


_NEIGHBOR = """
import sys
from cookhouse.engine import processors, share
hold = share._hold
share._hold = lambda name: hold(f"{sys.argv[1]}/{name}")
share.allowed_cores = lambda: [int(core) for core in sys.argv[2].split(",")]
share.num_threads = lambda: len(share.allowed_cores())
print(share.claim_cores(), flush=True)
sys.stdin.read()
"""


def test_an_engine_that_ends_meanwhile_leaves_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch one that is started again at once and has a part of the cores from then on."""
    _quota(monkeypatch, None)
    monkeypatch.setattr(share, "allowed_cores", lambda: [0, 1, 2])
    kept: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: kept.append(_), raising=False)
    ending = [share._hold(f"core/{core}") for core in (0, 2)]

    def end(_seconds: float) -> None:
        for claim in ending:
            assert claim is not None
            claim.close()

    monkeypatch.setattr(time, "sleep", end)
    assert share.claim_cores()
    assert not kept


@pytest.mark.skipif(len(_CORES) < 2, reason="needs two cores")
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_an_engine_keeps_off_the_cores_of_another_until_it_is_gone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _quota(monkeypatch, None)
    kept: list[list[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, held: kept.append(held))
    arguments = [sys.executable, "-c", _NEIGHBOR, _PREFIX, str(_CORES[0])]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as neighbor:
        assert next_line(neighbor) == "True\n"
        assert share.claim_cores()
        assert kept == [_CORES[1:]]
        assert not share.claim_cores(), "all are held: it shares them, unbound"
        neighbor.kill() if how == "is killed" else neighbor.communicate()
        neighbor.wait()
    while share._claims:
        share._claims.pop().close()
    assert share.claim_cores()
    assert kept == [_CORES[1:]], "nothing is held: it has all cores"


@pytest.mark.parametrize("narrow", [("quota", 1.0), ("OMP_NUM_THREADS", 1)])
def test_an_engine_of_fewer_threads_than_cores_claims_none(
    narrow: tuple[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch it bound to a core that another program uses while others are free."""
    monkeypatch.setattr(share, "allowed_cores", lambda: [0, 1])
    _quota(monkeypatch, narrow[1] if narrow[0] == "quota" else None)
    if narrow[0] != "quota":
        monkeypatch.setenv(narrow[0], str(narrow[1]))
    assert not share.claim_cores()
    assert not share._claims


@pytest.mark.parametrize(("device", "is_bound"), [("cuda", False), ("cpu", True)])
def test_an_engine_on_a_gpu_is_bound_to_no_core(device: str, is_bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch its thread, and the one of backward that it starts, on one core."""
    done: list[str] = []

    def note(name: str) -> bool:
        done.append(name)
        return True

    for name in ("claim_cores", "bind_cores"):
        monkeypatch.setattr(share, name, partial(note, name))
    monkeypatch.setattr(device_module, "choose_device", lambda _: torch.device(device))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch_engine, "TorchEngine", lambda **_: None)
    options = WorkerOptions(
        worker="w1", folder=Path("w1"), max_snapshot_bytes=1, max_snapshot_file_bytes=1, max_pass_tokens=1
    )
    _engine(options, {"device": device})
    assert done == (["claim_cores", "bind_cores"] if is_bound else [])


_SERVED = """
import json, os, sys, threading
from pathlib import Path
from cookhouse.engine.__main__ import _engine
from cookhouse.engine import share
from cookhouse.engine.contract import WorkerOptions
import torch
hold = share._hold
share._hold = lambda name: hold(f"{sys.argv[1]}/{name}")
def make():
    bounds = dict(max_snapshot_bytes=2**20, max_snapshot_file_bytes=2**20, max_pass_tokens=1024)
    options = WorkerOptions(worker="w1", folder=Path("w1"), **bounds)
    _engine(options, dict(base_models=[], device="cpu", precision="float32"))
    masks = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
    print(json.dumps([sorted(os.sched_getaffinity(0)), torch.get_num_threads(), masks]), flush=True)
threading.excepthook = lambda failure: (sys.excepthook(*failure[:3]), os._exit(1))  # instead of a wait for ever
thread = threading.Thread(target=make)
thread.start(); thread.join()
assert sorted(os.sched_getaffinity(0)) == json.loads(sys.argv[2])
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(cpu_kernels() is None, reason="no C++ compiler")
def test_the_threads_of_two_served_engines_are_never_bound_to_one_core(tmp_path: Path) -> None:
    """The first has a core for each of its threads, others of its process none; the second is left to the system."""
    command = [sys.executable, "-c", _SERVED, _PREFIX, json.dumps(_CORES)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    found = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=tmp_path, text=True
    ) as one:
        found.append(json.loads(next_line(one)))
        done = subprocess.run(
            command, input="", capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
        )
        found.append(json.loads(done.stdout))
        one.communicate()
    own, num_threads, masks = found[0]
    assert (own, num_threads) == ([_CORES[0]], len(_CORES))
    assert len(_CORES) == 1 or sorted(mask for mask in masks if len(mask) == 1) == [[core] for core in _CORES]
    assert found[1][:2] == [_CORES, len(_CORES)]
    assert len(_CORES) == 1 or all(mask == _CORES for mask in found[1][2])
