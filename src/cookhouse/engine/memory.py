"""How much memory the machine can spare."""

import functools
from pathlib import Path

import torch

from cookhouse.errors import InputError

_CACHE_SHARES = {"cpu": 0.5, "cuda": 0.4}
_MOST_SEQUENCES = 1024


def cache_bytes(device: torch.device, spare_bytes: int, bytes_per_sequence: int, max_bytes: int | None) -> int:
    """Bytes for the key-value cache of one base model, out of those that are free but for it.

    `max_bytes`, as far as there are so many; None: a share of them, for a number of sequences as long as the model
    allows at most: a small model has no use for more.
    """
    if max_bytes is not None:
        return min(max_bytes, spare_bytes)
    return min(int(spare_bytes * _CACHE_SHARES[device.type]), bytes_per_sequence * _MOST_SEQUENCES)


def check_free(free: int, num_bytes: int, what: str, way_out: str) -> None:
    """Refuse what does not fit into the memory that is free now.

    Raises:
        InputError: it does not; the message names both figures.
    """
    if num_bytes > free:
        raise InputError(f"{what} takes {show_bytes(num_bytes)} and {show_bytes(free)} of memory are free; {way_out}")


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now; on a GPU with what torch holds and does not use."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return _available_bytes()


@functools.cache
def total_bytes(device: torch.device) -> int:
    """All memory of a GPU, whoever uses it."""
    _, total = torch.cuda.mem_get_info(device)
    return int(total)


def show_bytes(num_bytes: int) -> str:
    """An amount of memory, for people."""
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**27 else f"{num_bytes / 2**20:.2f} MiB"


def _available_bytes() -> int:
    """What the machine has left, or the container that this process runs in."""
    return min(_machine_bytes(), _container_bytes(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))


def _machine_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo names no MemAvailable")


def _container_bytes(membership: Path, root: Path) -> int:
    """What the limits of a version 2 control group and of those around it leave, files that can go counted as free.

    Without any it is a number larger than any memory.
    """
    left = 2**62
    lines = membership.read_text(encoding="utf-8").splitlines() if membership.exists() else []
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    folders = () if group is None else (root / group, *(root / group).parents)
    for folder in folders:
        limit, used = folder / "memory.max", folder / "memory.current"
        if not folder.is_relative_to(root) or not limit.exists() or limit.read_text().strip() == "max":
            continue
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        left = min(left, int(limit.read_text()) - int(used.read_text()) + int(counts["inactive_file"]))
    return max(left, 0)
