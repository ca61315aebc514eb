"""Catches an engine whose passes hand their memory back and take it again, page by page."""

import subprocess
import sys

import pytest

_FAULTS = """
import resource
from cookhouse.engine.heap import give_back, keep_freed
import torch

keep_freed()

def run():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(2**20) for _ in range(50)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = run()
again = run()
give_back()
print(first, again, run())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the heap of glibc")
def test_memory_that_was_freed_is_kept_until_it_is_given_back() -> None:
    """Fifty tensors of 4 MiB: pages are taken once, most are used again, and all are taken anew once the system has
    them. How many there are depends on how large the system makes them.
    """
    done = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    first, again, anew = (int(word) for word in done.stdout.split())
    assert again < first / 4
    assert anew > 2 * again


_ADAPTERS = """
from pathlib import Path
from cookhouse.assets import TINY_MODEL
from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.heap import keep_freed
keep_freed()
from cookhouse.engine.torch_engine import TorchEngine

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))

engine = TorchEngine(base_models=[TINY_MODEL], device="cpu", precision="float32")
before = held()
for index in range(40):
    engine.create_model(str(index), TINY_MODEL, LoraSpec(rank=64, seed=0))
most = held()
for index in range(40):
    engine.delete_model(str(index))
print(before, most, held())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the heap of glibc")
def test_memory_of_models_comes_back_when_they_are_deleted() -> None:
    """Would catch a session of hundreds of adapters that holds gigabytes for as long as the engine lives."""
    done = subprocess.run([sys.executable, "-c", _ADAPTERS], capture_output=True, text=True, check=True)
    before, most, after = (int(word) for word in done.stdout.split())
    assert most - before > 100
    assert after - before < (most - before) / 4
