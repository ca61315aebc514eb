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
