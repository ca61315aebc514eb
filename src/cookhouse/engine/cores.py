"""The cores that an engine computes on, and how engines of one machine keep off each other's."""

import contextlib
import functools
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator

import torch

from cookhouse.engine.kernels.cpu import cpu_kernels
from cookhouse.engine.processors import allowed_cores, num_within_quota

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 1.0
_ENDING_SECONDS = 0.05
"""An engine that ends gives its cores up one after the other. The next one computes with as many, and the same bits."""
_claims: list[socket.socket] = []
"""One for each core that this process holds; the system drops them with the process, however it ends."""


def num_threads() -> int:
    """Threads to compute with: OMP_NUM_THREADS, or a core each, as far as a quota of processor time reaches."""
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return num_within_quota(len(allowed_cores()))


@functools.cache
def use_cores() -> int:
    """Give torch its threads, once; return their number."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(num_threads())
    return torch.get_num_threads()


def claim_cores() -> bool:
    """Claim the cores that the calling thread may run on for this process; whether its threads may be bound to them.

    Where other engines hold some, the calling thread and what it starts keep to the rest; where they hold all, it
    shares them and stays where the system puts it. So it does, and claims nothing, with fewer threads than cores: any
    core may be busy, and the system knows which. Decided once, before an engine is made.
    """
    cores = allowed_cores()
    if num_threads() != len(cores):
        return False
    with _claiming():
        held = [core for core in cores if _claim(core)]
        if held and held != cores:
            time.sleep(_ENDING_SECONDS)
            held = [core for core in cores if core in held or _claim(core)]
    if not held:
        _log.info("cores %s are held by other engines, or cannot be claimed: this one shares them", cores)
        return False
    if held != cores:
        _log.warning("other engines hold cores of this machine: this one computes on %d of %d", len(held), len(cores))
        os.sched_setaffinity(0, held)
    return True


@contextlib.contextmanager
def _claiming() -> Iterator[None]:
    """Let one engine at a time claim, so that two that start together do not take every other core."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (turn := _hold("claiming")) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield
    finally:
        if turn is not None:
            turn.close()


def bind_cores() -> bool:
    """Give the calling thread and those that compute for it a core each, to which they stay; whether it was done.

    For a thread that does nothing but compute: what it starts later stays on its core. Not where the cores are more
    than the threads, or nothing compiles.
    """
    kernels = cpu_kernels()
    return kernels is not None and kernels.bind_threads()


def _claim(core: int) -> bool:
    claim = _hold(f"core/{core}")
    if claim is not None:
        _claims.append(claim)
    return claim is not None


def _hold(name: str) -> socket.socket | None:
    """Hold a name that Linux gives to one socket of the machine at a time; None if another process has it."""
    if sys.platform != "linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0cookhouse/{name}")
    except OSError:
        holder.close()
        return None
    return holder
