"""A server in a world of its own: all of its parts but HTTP, over simulated workers; both may be lost."""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import sqlalchemy as sa

from cookhouse.engine.contract import Worker
from cookhouse.engine.simulated import Costs, SimulatedEngine
from cookhouse.engine.transports.simulated import Simulated
from cookhouse.errors import InputError
from cookhouse.server.pool.plans import FOLDER, WorkerPlan, worker_options
from cookhouse.server.sequencer.futures import Future, Result
from cookhouse.server.service import Service
from cookhouse.server.settings import ServiceOptions, Settings
from cookhouse.server.storage.journal import OFF
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import AnswerRecord, EntryRecord, SamplerRecord, StateRecord
from tests.simulation.faults import DiskRates, FaultRates, Faults, FaultyDisk, FussyEngine
from tests.simulation.processes import KilledError, Process

BASE = "cookhouse/tiny"
WITHOUT_JOURNAL = Settings(journal=OFF)
_WRITE_SECONDS = 0.1
"""Of the files of a save: so long that it is often under way when something else happens."""
_T = TypeVar("_T")
Request = Callable[[Service], Awaitable[_T]]


@dataclass(frozen=True, kw_only=True)
class CrashRates:
    """How often the whole server is killed."""

    seconds: float = 10.0
    """Between two, about; a third of them comes while the one before is still made up for."""
    num_crashes: int = 8
    """No more than these, so that programs end."""


@dataclass(frozen=True, kw_only=True)
class ChangeRates:
    """How often an operator drains a worker, or adds one."""

    seconds: float = 10.0
    """Between two, about."""
    num_changes: int = 0
    drain_seconds: float = 2.0
    """What a worker that is drained may take for its samples, at most."""


class SimulatedServer:
    """Opened and closed within a running world. With a journal it may be killed at any moment, and another one is
    started over the same folder.
    """

    def __init__(
        self,
        folder: Path,
        owners: Mapping[str, str],
        *,
        settings: Settings = WITHOUT_JOURNAL,
        costs: Costs = Costs(),  # noqa: B008
        rates: FaultRates = FaultRates(),  # noqa: B008
        disk_rates: DiskRates = DiskRates(),  # noqa: B008
        crash_rates: CrashRates = CrashRates(num_crashes=0),
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        changes: ChangeRates = ChangeRates(),
        seed: int = 0,
    ) -> None:
        """`owners`: the keys of the tenants; `plans`: the workers that each server starts with."""
        self.has_journal = settings.journal != OFF
        self.settings = settings
        self.faults = Faults(rates, random.Random(f"faults of {seed}"), by_content=self.has_journal)
        self.engines: dict[str, SimulatedEngine] = {}
        """The one in use of each worker, by name."""
        self.drops_samplers = settings.max_snapshot_file_bytes < 2**20
        """Whether weights of samplers go for others."""
        self.answered_twice: list[tuple[bytes, str, bytes]] = []
        """Second answers, which differ from the first; a replay may give the same once more."""
        self.up_at = 0.0
        """When the present server began to answer."""
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._owners = owners
        self._costs = costs
        self._disk_rates = disk_rates
        self._crash_rates = crash_rates
        self._plans = plans
        self._changes = changes
        self._chance = random.Random(f"crashes of {seed}")
        self._num_made = 0
        self._is_up = asyncio.Event()
        self._processes: list[Process] = []
        self._tasks: list[asyncio.Task[None]] = []
        if self.has_journal:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_empty_database(), folder / "server.db")
        self._begin()

    async def open(self) -> None:
        """Start it, and whoever kills it and starts it again."""
        if self.has_journal:
            self._tasks = [asyncio.create_task(self._keep_up()), asyncio.create_task(self._kill_now_and_then())]
        if self._changes.num_changes:
            self._tasks.append(asyncio.create_task(self._change_now_and_then()))
        with suppress(KilledError):
            await self._open()
        await self._is_up.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.has_journal:
            await self._processes[-1].ask(self.service.close())
        else:
            await self.service.close()

    def bury(self) -> None:
        """Let go of all servers that were killed, at the end of the world."""
        for process in self._processes:
            process.kill()
            process.bury()

    async def ask(self, request: Request[_T], patience: float | None = None) -> _T:
        """What the server answers.

        Raises:
            KilledError: it died meanwhile.
            TimeoutError: it did not answer within `patience`, and goes on.
        """
        if not self.has_journal:
            return await request(self.service)
        await self._is_up.wait()

        async def answer() -> _T:
            return await request(self.service)

        return await self._processes[-1].ask(answer(), patience)

    async def calm(self) -> None:
        """Have no more crashes, changes, nor faults of the disk."""
        self._crash_rates = CrashRates(num_crashes=0)
        self._changes = ChangeRates()
        self._disk_rates = DiskRates()
        await self._is_up.wait()
        if self.has_journal:
            self._disk.rates = self._disk_rates

    def _begin(self) -> None:
        shutil.rmtree(self._folder / FOLDER, ignore_errors=True)
        if not self.has_journal:
            self.service = self._make_service()
            return
        process = Process(
            disk := FaultyDisk(self._disk_rates, self._chance, kill=lambda: self._kill(process), counts=self.counts)
        )
        self._disk = disk
        self._processes.append(process)
        self.service = process.call(self._make_service)
        disk.watch(self.service.storage.store)

    def _make_service(self) -> Service:
        service = Service(
            ServiceOptions(api_keys=list(self._owners), state_dir=self._folder, settings=self.settings),
            self._make_worker,
            plans=self._plans,
            store=Store(self._folder / "server.db" if self.has_journal else Path(":memory:")),
        )
        finish = service.sequencer.futures.finish

        def counting(future: Future, result: Result) -> None:
            """Notice a second answer, which the server would drop without a word. What the engine had when a session
            ended has been told so before it is done.
            """
            first = future.result
            has_ended = first is not None and b"has ended" in first.body + result.body
            is_again = has_ended or (self.has_journal and first == result)
            if first is not None and not is_again:
                self.answered_twice.append((result.body, future.request_id, first.body))
            finish(future, result)

        service.sequencer.futures.finish = counting  # type: ignore[method-assign]
        return service

    async def _open(self) -> None:
        if self.has_journal:
            await self._processes[-1].ask(self._open_there())
        else:
            await self.service.open()
        self.up_at = asyncio.get_running_loop().time()
        self._is_up.set()

    async def _open_there(self) -> None:
        await self.service.open()

    def _kill(self, process: Process) -> None:
        if process.is_alive and self.counts["crashes"] < self._crash_rates.num_crashes:
            self.counts["crashes"] += 1
            self._is_up.clear()
            process.kill()
            self.service.storage.store.close()

    async def _keep_up(self) -> None:
        """Start it again whenever it died."""
        while True:
            await asyncio.shield(self._processes[-1].killed)
            await asyncio.sleep(self._chance.choice([0.0, 0.1, 3.0]))
            try:
                self._begin()
                await self._open()
            except KilledError:
                self.counts["crashes of a start"] += 1

    async def _kill_now_and_then(self) -> None:
        while True:
            mean = self._crash_rates.seconds
            seconds = self._chance.choice([0.1, 1.0, mean]) if self.counts["crashes"] else mean
            await asyncio.sleep(self._chance.random() * 2 * seconds)
            for _ in range(self._chance.choice([0, 1, 2, 5, 10])):
                await asyncio.sleep(0)
            self._kill(self._processes[-1])

    async def _change_now_and_then(self) -> None:
        """Drain a worker, or add one, while all others go on."""
        while True:
            await asyncio.sleep(self._chance.random() * 2 * self._changes.seconds)
            if self.counts["changes"] >= self._changes.num_changes:
                continue
            self.counts["changes"] += 1
            with suppress(KilledError):
                await self.ask(self._change)

    async def _change(self, service: Service) -> None:
        workers = service.pool.workers
        if self._chance.random() < 0.5 and len(workers) < 2 * len(self._plans):
            service.supervisor.add()
            self.counts["adds"] += 1
            return
        name = self._chance.choice([worker.name for worker in workers])
        try:
            worker = service.supervisor.begin_drain(name)
        except InputError:
            self.counts["drains refused"] += 1
            return
        await service.supervisor.drain(worker, self._chance.random() * self._changes.drain_seconds)
        self.counts["drains"] += 1

    def _make_worker(self, plan: WorkerPlan) -> Worker:
        def make(spend: object) -> SimulatedEngine:
            engine = FussyEngine([BASE], costs=self._costs, spend=spend, faults=self.faults)
            self.engines[plan.name] = engine
            return engine

        self._num_made += 1
        options = worker_options(self.settings, self._folder, plan)
        options = replace(options, worker=f"engine{self._num_made}")
        return Simulated(make, options, write_seconds=_WRITE_SECONDS)

    def leftovers(self) -> dict[str, object]:
        """What is still held: nothing, once all sessions have ended and all results been forgotten."""
        service = self.service
        sequencer, pool = service.sequencer, service.pool
        engines = [self.engines[worker.name] for worker in pool.workers]
        memories = [worker.memory for worker in pool.workers]
        held: dict[str, object] = {
            "sessions": len(list(service.sessions)),
            "futures": len(service.sequencer.futures),
            "models of the engines": sum(len(engine._models) for engine in engines),
            "snapshots of the engines": sum(len(engine._snapshots) for engine in engines),
            "samples of the engines": sum(len(engine._running) for engine in engines),
            "commands": len(pool._pending) + sum(len(worker.commands) + worker.num_tokens for worker in pool.workers),
            "models that look for a place": len(pool.placement._creations),
            "weights on their way": len(pool.transfers._writing),
            "weights at workers": sum(len(one.snapshots | one.fetched | one.evicted) for one in memories),
            "files of workers": self._files_of_workers(),
            "models with a place": len(pool.placement._workers) + len(pool.placement._shapes),
            "weights to read again": len(pool.weights._fetches) + len(pool.weights._shapes),
            "weights to come": len(pool.weights._expected),
            "origins of weights": len(pool.weights._origins) + len(pool.weights._newest),
            "queues": len(sequencer._queues),
            "samples": len(service.sequencer.samples) + service.sequencer.samples._numbers.total(),
            "bytes": service.sequencer.held._by_owner.total() + sequencer._pending_bytes.total(),
        }
        if self.has_journal:
            held |= self._leftovers_on_disk()
            held["tasks"] = _beyond({"sweeper", "worker events", "worker"}, self._processes[-1])
        else:
            # This task, the two of the sweeper, those of ours, and of each worker its own and the reader of its events.
            held["tasks"] = max(0, len(asyncio.all_tasks()) - 3 - len(self._tasks) - 2 * len(pool.workers))
        return {name: what for name, what in held.items() if what}

    def _files_of_workers(self) -> list[str]:
        """All but the folders of those that there are, and the one that weights move through."""
        folder = self._folder / FOLDER
        usual = {folder / name for name in ("moves", *(worker.name for worker in self.service.pool.workers))}
        return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path not in usual]

    def _leftovers_on_disk(self) -> dict[str, object]:
        held: dict[str, object] = {}
        with self.service.storage.store.database.reading() as session:
            for record in (EntryRecord, AnswerRecord, StateRecord):
                held[record.__tablename__] = session.scalar(sa.select(sa.func.count()).select_from(record))
            with_files = sa.select(sa.func.count()).select_from(SamplerRecord).where(SamplerRecord.has_file)
            held["samplers with files"] = session.scalar(with_files)
        for name in ("states", "samplers", "loads", "journal"):
            held[f"files of {name}"] = [path.name for path in self._folder.glob(f"{name}/*")]
        kept = self.service.storage.store.checkpoint_ids()
        held["files of checkpoints"] = [
            path.name for path in (self._folder / "checkpoints").iterdir() if path.name not in kept
        ]
        return held


def _beyond(usual: set[str], process: Process) -> list[str]:
    names = [task.get_name() for task in process.tasks if not task.done()]
    return [name for name in names if not any(name.startswith(each) for each in usual)]


@cache
def _empty_database() -> Path:
    """A database as a new server makes it, which takes long."""
    file = Path(mkdtemp(prefix="cookhouse-simulation-")) / "server.db"
    Store(file).close()
    return file
