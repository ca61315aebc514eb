"""The part of a machine that one of several workers takes: cores, memory, or a GPU."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cookhouse.engine.cores import num_threads
from cookhouse.engine.device import choose_device
from cookhouse.engine.host_memory import available_bytes, resident_bytes, total_bytes
from cookhouse.engine.memory import free_bytes, held_bytes
from cookhouse.engine.memory import total_bytes as device_total_bytes
from cookhouse.engine.processors import allowed_cores


@dataclass(frozen=True, slots=True)
class Share:
    """That of worker `index` out of `num_sharing`."""

    index: int
    num_sharing: int
    memory_bytes: int | None = None
    """The most of the machine's memory; None: an equal part."""
    gpu_part: float = 1.0
    """Of a GPU that is for it alone, as far as this server goes: others may have the rest."""

    def take_cores(self) -> None:
        """Keep the calling thread, and what it starts, to this worker's part of the cores, and torch to as many
        threads. Workers beyond the number of cores share them in turn. With one worker nothing changes.
        """
        if self.num_sharing == 1:
            return
        cores = allowed_cores()
        number = max(1, num_threads() // self.num_sharing)
        if not os.environ.get("OMP_NUM_THREADS", ""):
            torch.set_num_threads(number)
            os.environ["OMP_NUM_THREADS"] = str(number)
        if hasattr(os, "sched_setaffinity"):
            first, end = (number * len(cores) // self.num_sharing for number in (self.index, self.index + 1))
            os.sched_setaffinity(0, cores[first : max(end, first + 1)])

    def device(self, name: str | None) -> str | None:
        """The device of this worker: where all GPUs are meant, one of them each, in turn.

        Raises:
            InputError: as `choose_device`.
        """
        if self.num_sharing == 1 or choose_device(name).type != "cuda" or name not in (None, "cuda"):
            return name
        return f"cuda:{self.index % torch.cuda.device_count()}"

    def most_bytes(self, device: torch.device) -> int | None:
        """What this worker may take of a device's memory in all; None: whatever is free."""
        if device.type == "cuda":
            part = self.gpu_part / self._num_on(device)
            return None if self.num_sharing == part == 1 else int(device_total_bytes(device) * part)
        if self.num_sharing == 1 and self.memory_bytes is None:
            return None
        return self.memory_bytes or total_bytes() // self.num_sharing

    def free_bytes(self, device: torch.device) -> Callable[[], int] | None:
        """Says what this worker may still take of a device's memory; None: all that is free."""
        most = self.most_bytes(device)
        if most is None:
            return None
        if device.type == "cuda":
            return lambda: max(min(free_bytes(device), most - held_bytes(device)), 0)
        return lambda: max(min(available_bytes(), most - (resident_bytes() or 0)), 0)

    def _num_on(self, device: torch.device) -> int:
        count = torch.cuda.device_count()
        return max(1, len([index for index in range(self.num_sharing) if index % count == (device.index or 0)]))
