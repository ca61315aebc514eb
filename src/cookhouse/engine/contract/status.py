"""Status of a worker: what it does now, and what memory that takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cookhouse.engine.contract.commands import Account

TurnKind = Literal["other", "train", "sample"]
"""`other` is an errand: a command that is short."""


class RunningCommand(NamedTuple):
    """A command that the present turn carries out, or the samples of an account."""

    kind: str
    """The name of its class."""
    account: Account
    model_id: str
    """Empty: it is not about a model."""


class TurnCount(NamedTuple):
    """Turns of a kind that are over, since the worker was made."""

    kind: TurnKind
    number: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """The key-value cache of a sampler. A block is used while a sequence needs it; what a free one holds may be found
    again.
    """

    base_model: str
    num_used_blocks: int
    num_blocks: int
    """Those that there are."""
    max_blocks: int
    """Those that there may be, where memory suffices."""
    block_bytes: int
    running: Mapping[str, int]
    """Sequences, by owner."""
    waiting: Mapping[str, int]
    """The same: not admitted yet, or put off for want of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Of an engine."""

    caches: tuple[CacheUse, ...] = ()
    device_bytes: int | None = None
    """Held of a GPU's memory; None: it computes on the CPU."""
    device_peak_bytes: int | None = None
    """The most of it that tensors have taken at once."""
    device_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    turn: TurnKind | None
    """The present one; None: it waits for commands."""
    turn_seconds: float
    """How long that has taken so far."""
    running: tuple[RunningCommand, ...]
    """What it serves, the first of many."""
    num_running: int
    turns: tuple[TurnCount, ...]
    resident_bytes: int | None
    """Memory of its process; None where the system does not tell."""
    memory: MemoryUse
