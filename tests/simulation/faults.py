"""What goes wrong in a simulation: drawn by chance, or, where a replay must find the same, by what a request says."""

import asyncio
import errno
import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cookhouse.engine.contract import AdamStep, ForwardBackward, ForwardBackwardOutput, LoraSpec, NoMemoryError
from cookhouse.engine.simulated import SimulatedEngine, WorkerLostError
from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.storage.journal import SegmentFiles
from cookhouse.server.storage.store.failures import full, locked
from cookhouse.server.storage.store.store import Store
from tests.simulation.processes import Disk

REFUSAL, BUG = "an injected refusal", "an injected bug"


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """How often a piece of work of the engine's goes wrong."""

    refused: float = 0.0
    failed: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 20.0
    lost: float = 0.0
    """The whole worker."""
    full: float = 0.0
    """How often there is no memory for a model at the moment."""


@dataclass
class Faults:
    """Draws faults of an engine's work."""

    rates: FaultRates
    chance: random.Random
    by_content: bool = False
    """Whether `refused` and `failed` are drawn by what is asked for, so that they are the same in a replay."""
    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, _method: str) -> float:
        drawn = self.chance.random()
        for name in ("lost", "slow") if self.by_content else ("lost", "failed", "refused", "slow"):
            drawn -= getattr(self.rates, name)
            if drawn < 0:
                self.counts[name] += 1
                return self._happen(name)
        return 0.0

    def look_at(self, *content: object) -> None:
        """Raise what is wrong with the content of a piece of work."""
        if not self.by_content:
            return
        digest = hashlib.blake2b(repr(content).encode(), digest_size=8).digest()
        drawn = int.from_bytes(digest, "little") / 2**64
        for name in ("failed", "refused"):
            drawn -= getattr(self.rates, name)
            if drawn < 0:
                self.counts[name] += 1
                self._happen(name)

    def look_for_room(self) -> None:
        """Raise that there is no memory for a model: also in a replay, by chance, since it is the moment's."""
        if self.rates.full and self.chance.random() < self.rates.full:
            self.counts["full"] += 1
            raise NoMemoryError(REFUSAL)

    def _happen(self, name: str) -> float:
        match name:
            case "lost":
                raise WorkerLostError("an injected loss")
            case "failed":
                raise RuntimeError(BUG)
            case "refused":
                raise InputError(REFUSAL)
        return self.chance.random() * self.rates.slow_seconds


class FussyEngine(SimulatedEngine):
    """Refuses some requests for what they say."""

    def __init__(self, base_models: Sequence[str], *, faults: Faults, **options: Any) -> None:
        super().__init__(base_models, faults=faults, **options)
        self._look_at = faults.look_at
        self._look_for_room = faults.look_for_room

    def load_state(self, model_id: str, base_model: str, lora: LoraSpec, folder: Path, **parts: Any) -> None:
        self._look_for_room()
        super().load_state(model_id, base_model, lora, folder, **parts)

    def create_model(self, model_id: str, base_model: str, lora: LoraSpec) -> None:
        self._look_for_room()
        self._look_at(lora)
        super().create_model(model_id, base_model, lora)

    def _pass(self, request: ForwardBackward) -> ForwardBackwardOutput:
        self._look_at(request.data_D[0].tokens_T.tobytes())
        return super()._pass(request)

    def optim_step(self, model_id: str, step: AdamStep) -> Any:
        self._look_at(step)
        return super().optim_step(model_id, step)

    def snapshot(self, model_id: str, snapshot_id: str) -> None:
        self._look_at("snapshot", self.state(model_id).weights)
        super().snapshot(model_id, snapshot_id)


@dataclass(frozen=True, kw_only=True)
class DiskRates:
    """How often something happens to a server at one piece of blocking work."""

    seconds: float = 0.005
    """What it takes, at most; now and then ten times as long."""
    killed: float = 0.0
    """The server, before it or after it."""
    locked: float = 0.0
    """The database, for a while."""
    locked_seconds: float = 40.0
    cut: float = 0.0
    """The connection to the database, after it has committed."""


@dataclass
class FaultyDisk(Disk):
    rates: DiskRates
    chance: random.Random
    kill: Callable[[], None]
    counts: Counter[str] = field(default_factory=Counter)
    _locked_until: float = 0.0

    def seconds(self) -> float:
        longest = self.rates.seconds * (10.0 if self.chance.random() < 0.05 else 1.0)
        return max(1e-6, self.chance.random() * longest)

    def before(self) -> None:
        self._maybe_kill("killed before a write")

    def after(self) -> None:
        self._maybe_kill("killed behind a write")

    def _maybe_kill(self, name: str) -> None:
        if self.chance.random() < self.rates.killed / 2:
            self.counts[name] += 1
            self.kill()

    def watch(self, store: Store) -> None:
        """Have transactions of the journal's fail now and then."""
        database, transaction = store.database, store.database.transaction

        @contextmanager
        def failing(busy_seconds: float | None = None) -> Iterator[Any]:
            if busy_seconds is None:  # not the journal's
                with transaction(busy_seconds) as connection:
                    yield connection
                return
            now = asyncio.get_running_loop().time()
            if now >= self._locked_until and self.chance.random() < self.rates.locked:
                self.counts["locked"] += 1
                self._locked_until = now + self.chance.random() * self.rates.locked_seconds
            if now < self._locked_until:
                raise self.chance.choice([locked(1.0), full()])
            with transaction(busy_seconds) as connection:
                yield connection
            if self.chance.random() < self.rates.cut:
                self.counts["cut"] += 1
                cause = sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("cut"))
                cause.connection_invalidated = True
                raise StorageBusyError("the database is out of reach") from cause

        database.transaction = failing  # type: ignore[method-assign]

    def watch_segments(self, segments: SegmentFiles) -> None:
        """Have bodies find no room while the database is locked."""
        write = segments._objects.write  # type: ignore[union-attr]

        def failing(name: str, parts: Sequence[bytes]) -> None:
            if asyncio.get_running_loop().time() < self._locked_until:
                raise OSError(errno.ENOSPC, "no room")
            write(name, parts)

        segments._objects.write = failing  # type: ignore[union-attr, method-assign]
