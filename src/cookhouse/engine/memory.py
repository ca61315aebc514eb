"""Memory that the machine can spare, and the release of what is not needed."""

import functools
import gc
import traceback
import weakref
from typing import Protocol

import torch

from cookhouse.engine.host_memory import available_bytes

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


def let_go(error: Exception) -> None:
    """Free what a computation that failed held: the error's frames refer to its tensors."""
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class MemoryPool(Protocol):
    """Memory of a GPU that torch holds for one use alone, as for captured graphs."""

    @property
    def device(self) -> torch.device:
        """The GPU."""

    @property
    def num_bytes(self) -> int:
        """Bytes that torch holds for it, in use or not."""


_pools: weakref.WeakSet[MemoryPool] = weakref.WeakSet()


def note_pool(pool: MemoryPool) -> None:
    """Count a pool as taken for as long as it is there."""
    _pools.add(pool)


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now; on a GPU with what torch holds and does not use, but for pools."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        pooled = sum(pool.num_bytes for pool in _pools if pool.device == device)
        return max(int(free + unused - pooled), 0)
    return available_bytes()


@functools.cache
def total_bytes(device: torch.device) -> int:
    """All memory of a GPU, whoever uses it."""
    _, total = torch.cuda.mem_get_info(device)
    return int(total)


def held_bytes(device: torch.device) -> int:
    """Bytes of a GPU's memory that torch holds, used or not. Asks the device nothing: a graph may be recorded
    meanwhile.
    """
    return torch.cuda.memory_reserved(device)


def most_bytes(device: torch.device) -> int:
    """The most of a GPU's memory that tensors have taken at once."""
    return torch.cuda.max_memory_allocated(device)
