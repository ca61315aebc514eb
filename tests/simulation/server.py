"""A server in a world of its own: all of its parts but HTTP, over simulated workers, with its database in memory."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cookhouse.engine.contract import Worker
from cookhouse.engine.simulated import Costs, SimulatedEngine, WorkerLostError
from cookhouse.engine.transports.simulated import Simulated
from cookhouse.errors import InputError
from cookhouse.server.sequencer.futures import Future, Result
from cookhouse.server.service import Service
from cookhouse.server.settings import Settings
from cookhouse.server.store.store import Store
from cookhouse.server.workers import worker_options

BASE = "cookhouse/tiny"
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


@dataclass
class Faults:
    """Draws faults of an engine's work."""

    rates: FaultRates
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, _method: str) -> float:
        drawn = self.chance.random()
        for name in ("lost", "failed", "refused", "slow"):
            drawn -= getattr(self.rates, name)
            if drawn < 0:
                self.counts[name] += 1
                return self._happen(name)
        return 0.0

    def _happen(self, name: str) -> float:
        match name:
            case "lost":
                raise WorkerLostError("an injected loss")
            case "failed":
                raise RuntimeError(BUG)
            case "refused":
                raise InputError(REFUSAL)
        return self.chance.random() * self.rates.slow_seconds


class SimulatedServer:
    """Opened and closed within a running world."""

    def __init__(
        self,
        folder: Path,
        owners: Mapping[str, str],
        *,
        settings: Settings = Settings(),  # noqa: B008
        costs: Costs = Costs(),  # noqa: B008
        rates: FaultRates = FaultRates(),
        seed: int = 0,
    ) -> None:
        """`owners`: the keys of the tenants."""
        self.faults = Faults(rates, random.Random(f"faults of {seed}"))
        self.engines: list[SimulatedEngine] = []
        """One of each worker; the last one is in use."""
        self._costs = costs
        self._options = worker_options(settings, folder)
        self.service = Service(
            api_keys=list(owners),
            state_dir=folder,
            settings=settings,
            make_worker=self._make_worker,
            store=Store(Path(":memory:")),
        )
        self.num_answered_twice = 0
        self._count_answers()

    def _make_worker(self) -> Worker:
        def make(spend: object) -> SimulatedEngine:
            engine = SimulatedEngine([BASE], costs=self._costs, spend=spend, faults=self.faults)  # type: ignore[arg-type]
            self.engines.append(engine)
            return engine

        return Simulated(make, replace(self._options, worker=f"engine{len(self.engines)}"))

    def _count_answers(self) -> None:
        """Notice a second answer, which the server would drop without a word."""
        finish = self.service.futures.finish

        def counting(future: Future, result: Result) -> None:
            self.num_answered_twice += future.result is not None
            finish(future, result)

        self.service.futures.finish = counting  # type: ignore[method-assign]

    def leftovers(self) -> dict[str, int]:
        """What is still held: nothing, once all sessions have ended and all results been forgotten."""
        service, engine = self.service, self.engines[-1]
        sequencer, calls = service.sequencer, service.calls
        held = {
            "sessions": len(list(service.sessions)),
            "futures": len(service.futures),
            "models of the engine": len(engine._models),
            "snapshots of the engine": len(engine._snapshots),
            "samples of the engine": len(engine._running),
            "calls": len(calls._calls),
            "weights to read again": len(calls._fetches),
            "queues": len(sequencer._queues),
            "samples": len(sequencer._samples) + sequencer._num_samples.total(),
            "bytes": service.held._by_owner.total() + sequencer._pending_bytes.total(),
            "tasks": len(asyncio.all_tasks()),
        }
        return {name: number for name, number in held.items() if number}
