"""The part of a machine that one of several workers takes: cores, which engines of one machine keep off each other,
memory, or a GPU.
"""

import contextlib
import functools
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from cookhouse.engine.device import choose_device
from cookhouse.engine.host_memory import available_bytes, resident_bytes, show_bytes, total_bytes
from cookhouse.engine.kernels.cpu import cpu_kernels
from cookhouse.engine.memory import free_bytes, held_bytes
from cookhouse.engine.memory import total_bytes as device_total_bytes
from cookhouse.engine.processors import allowed_cores, num_within_quota
from cookhouse.errors import InputError

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 1.0
_ENDING_SECONDS = 0.05
"""An engine that ends gives its cores up one after the other. The next one computes with as many, and the same bits."""
_claims: list[socket.socket] = []
"""One for each core that this process holds; the system drops them with the process, however it ends."""
_SERVER_BYTES = 5 * 2**29
"""Of the machine, for the server's own process: the 2 GiB of requests that it may hold, and half a GiB for itself."""
_MAX_SERVER_PART = 8
"""It is kept no more than this part of the machine, one in so many."""


@dataclass(frozen=True, slots=True)
class Share:
    """Share of worker `index` out of `num_sharing`; one beyond these was added, and has what they leave over."""

    index: int
    num_sharing: int
    memory_bytes: int | None = None
    """The most of the machine's memory; None: an equal part."""
    gpu_part: float = 1.0
    """Of a GPU that is for it alone, as far as this server goes: others may have the rest."""

    def take_cores(self) -> None:
        """Keep the calling thread, and what it starts, to this worker's part of the cores, and torch to as many
        threads, whichever worker it is. Workers beyond the number of cores, or of parts, share them in turn. With
        one part nothing changes.
        """
        if self.num_sharing == 1:
            return
        cores = allowed_cores()
        number = max(1, num_threads() // self.num_sharing)
        if not os.environ.get("OMP_NUM_THREADS", ""):
            torch.set_num_threads(number)
            os.environ["OMP_NUM_THREADS"] = str(number)
        if hasattr(os, "sched_setaffinity"):
            part = self.index % self.num_sharing
            first, end = (number * len(cores) // self.num_sharing for number in (part, part + 1))
            os.sched_setaffinity(0, cores[first : max(end, first + 1)])

    def device(self, name: str | None) -> str | None:
        """The device of this worker: where all GPUs are meant, one of them each, in turn.

        Raises:
            InputError: as `choose_device`.
        """
        if self._is_alone or choose_device(name).type != "cuda" or name not in (None, "cuda"):
            return name
        return f"cuda:{self.index % torch.cuda.device_count()}"

    def most_bytes(self, device: torch.device) -> int | None:
        """Bytes of a device's memory that this worker may take in all; None: whatever is free.

        Raises:
            InputError: it was added, and others may take all of it.
        """
        self._check(device)
        if device.type == "cuda":
            part = self.gpu_part / self._num_on(device)
            return None if self.num_sharing == part == 1 else int(device_total_bytes(device) * part)
        if self.num_sharing == 1 and self.memory_bytes is None:
            return None
        return self.memory_bytes or (total_bytes() - _reserve_bytes()) // self.num_sharing

    def free_bytes(self, device: torch.device) -> Callable[[], int] | None:
        """Says what this worker may still take of a device's memory; None: all that is free. Raises as `most_bytes`."""
        most = self.most_bytes(device)
        if most is None:
            return None
        if device.type == "cuda":
            return lambda: max(min(free_bytes(device), most - held_bytes(device)), 0)
        return lambda: max(min(available_bytes(), most - (resident_bytes() or 0)), 0)

    @property
    def _is_alone(self) -> bool:
        return self.num_sharing == 1 and self.index == 0

    def _check(self, device: torch.device) -> None:
        if self.index < self.num_sharing:
            return
        is_gpu = device.type == "cuda"
        if is_gpu and self.index < torch.cuda.device_count():
            return  # the others have those before it
        whole = device_total_bytes(device) if is_gpu else total_bytes()
        kept = 0 if is_gpu else _reserve_bytes()
        number = self._num_on(device) if is_gpu else self.num_sharing
        server = f", and the server {show_bytes(kept)}" if kept else ""
        raise InputError(
            f"no memory is left for one more worker: of {show_bytes(whole)} {number} may take "
            f"{show_bytes((whole - kept) // number)} each{server}; drain one first, or start the server with as many "
            "as it shall have"
        )

    def _num_on(self, device: torch.device) -> int:
        count = torch.cuda.device_count()
        return max(1, len([index for index in range(self.num_sharing) if index % count == (device.index or 0)]))


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


def _reserve_bytes() -> int:
    return min(_SERVER_BYTES, total_bytes() // _MAX_SERVER_PART)
