"""How much memory the machine can spare."""

from pathlib import Path

import torch

from cookhouse.errors import InputError

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


def check_free(device: torch.device, num_bytes: int, what: str, way_out: str) -> None:
    """Refuse what does not fit into the memory that is free now.

    Raises:
        InputError: it does not; the message names both figures.
    """
    free = free_bytes(device)
    if num_bytes > free:
        raise InputError(f"{what} takes {show_bytes(num_bytes)} and {show_bytes(free)} of memory are free; {way_out}")


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now; on a GPU with what torch holds and does not use."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return _available_bytes()


def show_bytes(num_bytes: int) -> str:
    """An amount of memory, for people."""
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**27 else f"{num_bytes / 2**20:.2f} MiB"


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo names no MemAvailable")
