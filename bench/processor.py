"""The processor that figures were measured on: its name, and what it can do at most, by a calibration of seconds."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS = 1.0
"""How long each calibration repeats; the best round counts."""
_SIZE = 1024
_COPIED_BYTES = 2**28
"""More than a cache holds."""


def processor_model() -> str:
    """As the system names it, which for a virtual machine may be a family alone."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def calibrate() -> dict[str, Any]:
    """Model and cores; GFLOP/s per core of square products in fp32 and bf16, and GB/s of memory, on all cores at once.

    Two operations for a multiplication with its addition; a byte that is copied counts twice, read and written.
    """
    import torch

    num_cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(num_cores)
    products = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(_SIZE, _SIZE).to(dtype) for _ in range(2))
        flops = 2 * _SIZE**3 / _best_seconds(lambda a=a, b=b: torch.mm(a, b))  # type: ignore[misc]
        products[str(dtype).removeprefix("torch.")] = flops / num_cores / 1e9
    source, target = (torch.ones(_COPIED_BYTES // 4) for _ in range(2))
    copied = 2 * _COPIED_BYTES / _best_seconds(lambda: target.copy_(source))
    return {
        "model": processor_model(),
        "cores": num_cores,
        "gflops_per_core": products,
        "memory_gb_per_second": copied / 1e9,
    }


def share_of_peak(processor: dict[str, Any], precision: str, flops_per_second: float) -> float:
    """Of what all cores could multiply."""
    peak: float = processor["gflops_per_core"][precision] * processor["cores"] * 1e9
    return flops_per_second / peak


def _best_seconds(work: Callable[[], object]) -> float:
    best, deadline = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < deadline or best == float("inf"):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
