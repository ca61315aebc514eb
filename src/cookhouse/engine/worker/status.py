"""Status of a worker, and what its accounts use: kept by the thread that takes turns, read by any."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

from cookhouse.engine.contract import (
    Account,
    Amount,
    MemoryUse,
    ModelCommand,
    RunningCommand,
    Sample,
    Spent,
    SpentKind,
    TurnCount,
    TurnKind,
    WorkerStatus,
)
from cookhouse.engine.host_memory import resident_bytes
from cookhouse.engine.worker.turns import Turn

Served = tuple[Account, str, int]
"""Whom a turn serves, for which command ("" for none), and by what weight."""


class WorkMeter:
    """Usage since it was last taken."""

    def __init__(self) -> None:
        self._counted: dict[tuple[Account, SpentKind, str], float] = defaultdict(float)

    def count(self, account: Account, kind: SpentKind, amount: float, command_id: str) -> None:
        """Put an amount down to an account."""
        if amount:
            self._counted[account, kind, command_id] += amount

    def charge(self, served: Sequence[Served], seconds: float) -> None:
        """Part the time of a turn among those that it served, by weight; equally where all weights are 0."""
        whole = sum(weight for *_, weight in served)
        for account, command_id, weight in served:
            self.count(account, "engine_seconds", seconds * (weight / whole if whole else 1 / len(served)), command_id)

    def take(self, command_ids: Collection[str] | None = None) -> Spent | None:
        """Take the usage that was counted since it was last taken, if any; `command_ids`: for these commands."""
        keys = [key for key in self._counted if command_ids is None or key[2] in command_ids]
        if not keys:
            return None
        return Spent(amounts=tuple(Amount(*key[:2], self._counted.pop(key), key[2]) for key in keys))


_MAX_NAMED = 16


@dataclass(slots=True)
class Taken:
    """The time of a turn, set at its end."""

    seconds: float = 0.0


class Status:
    """Each of its fields is replaced whole, never changed: a reader in another thread sees one of before or after."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._present: tuple[Turn, Sequence[Served], float] | None = None
        """Turn, whom it serves, and since when."""
        self._counts: dict[TurnKind, TurnCount] = {kind: TurnCount(kind, 0, 0.0) for kind in get_args(TurnKind)}

    @contextmanager
    def turn(self, turn: Turn, served: Sequence[Served]) -> Iterator[Taken]:
        """A turn is taken in the block."""
        taken, started_at = Taken(), self._clock()
        self._present = turn, served, started_at
        try:
            yield taken
        finally:
            self._present = None
            taken.seconds = self._clock() - started_at
            _, number, seconds = self._counts[turn.kind]
            self._counts[turn.kind] = TurnCount(turn.kind, number + 1, seconds + taken.seconds)

    def of(self, memory: MemoryUse) -> WorkerStatus:
        """The present one. From any thread."""
        kind: TurnKind | None = None
        seconds, number = 0.0, 0
        running: tuple[RunningCommand, ...] = ()
        if (present := self._present) is not None:
            turn, served, started_at = present
            kind, seconds = turn.kind, self._clock() - started_at
            running, number = _running(turn, served)
        return WorkerStatus(
            turn=kind,
            turn_seconds=seconds,
            running=running,
            num_running=number,
            turns=tuple(self._counts[one] for one in get_args(TurnKind)),
            resident_bytes=resident_bytes(),
            memory=memory,
        )


def _running(turn: Turn, served: Sequence[Served]) -> tuple[tuple[RunningCommand, ...], int]:
    """The first that a turn serves, and how many there are."""
    if turn.kind == "sample":
        accounts = list(dict.fromkeys(account for account, *_ in served))
        return tuple(RunningCommand(Sample.__name__, account, "") for account in accounts[:_MAX_NAMED]), len(served)
    named = tuple(
        RunningCommand(type(one).__name__, one.account, one.model_id if isinstance(one, ModelCommand) else "")
        for one in turn.commands[:_MAX_NAMED]
    )
    return named, len(turn.commands)
