"""How much memory the machine can spare."""

from pathlib import Path

import torch

_CPU_SHARE = 1 / 8
_CPU_MOST_BYTES = 2**29
_CUDA_SHARE = 0.4


def cache_bytes(device: torch.device) -> int:
    """Bytes for the key-value cache of one base model: a share of what is free now.

    On a CPU the pages are touched, and so really taken, only as sequences need them.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * _CUDA_SHARE)
    return min(int(_available_bytes() * _CPU_SHARE), _CPU_MOST_BYTES)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo names no MemAvailable")
