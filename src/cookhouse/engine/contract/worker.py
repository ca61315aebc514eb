"""A worker: something that takes commands and reports events, in a thread, a process of its own, or a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cookhouse.engine.contract.commands import Command
from cookhouse.engine.contract.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Settings of a worker: how it schedules and what it may hold. The operator's names for these are the same."""

    worker: str
    """Its name, of letters and digits: in events, in `worker://` URLs and in the log."""
    folder: Path
    """Its own: weights of samplers that wait in files, and the files of `worker://` URLs. Emptied at its start."""
    max_snapshot_bytes: int
    max_snapshot_file_bytes: int
    max_pass_tokens: int
    """Of all the passes that run together; one alone may be longer."""
    deterministic: bool = False
    """Each pass runs alone, so that what it gives does not depend on what others asked for meanwhile."""
    index: int = 0
    """Which part of the machine it takes: its cores, or its GPU; from `num_sharing` on what the others leave over."""
    num_sharing: int = 1
    """Parts that the machine's cores and memory are cut into."""
    memory_bytes: int | None = None
    """The most that it may take of the machine's memory; None: its part, as one of `num_sharing`."""
    gpu_part: float = 1.0
    """Of a GPU's memory, up to 1: the part that is for it."""
    trains: bool = True
    """Whether it is given models to train; else base models take the memory of their weights once."""


class Worker(Protocol):
    """Commands in, events out. Which commands it takes makes it a trainer, a sampler, or both."""

    def submit(self, commands: Sequence[Command]) -> None:
        """Hand over commands, in order. From any thread; never blocks, and never raises for a tenant's sake."""

    async def events(self) -> Sequence[Event]:
        """Events since the last call; waits for at least one. After `Lost`, or `close`, nothing: empty."""

    async def close(self, seconds: float) -> bool:
        """End after the present turn; False if that takes longer, and what runs on is left to itself."""
