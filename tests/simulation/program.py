"""A random program of many clients against a simulated server, the same for the same seed."""

import asyncio
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

from cookhouse.server.pool.plans import WorkerPlan
from cookhouse.server.settings import Settings
from tests.simulation.clients import Client, Habits, Ledger
from tests.simulation.faults import DiskRates, FaultRates
from tests.simulation.history import BrokenPromiseError
from tests.simulation.server import WITHOUT_JOURNAL, ChangeRates, CrashRates, SimulatedServer
from tests.simulation.virtual import World

FAULTS = FaultRates(refused=0.002, failed=0.002, slow=0.001, lost=0.00002)
ONE_WORKER = (WorkerPlan(),)
_ROW_BYTES = 100
"""Larger bodies go into segments, so that some do."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """How a server is set, and what befalls it."""

    settings: Settings = WITHOUT_JOURNAL
    rates: FaultRates = FAULTS
    disk: DiskRates = DiskRates()  # noqa: RUF009
    crashes: CrashRates = CrashRates(num_crashes=0)  # noqa: RUF009
    habits: Habits = Habits()  # noqa: RUF009
    changes: ChangeRates = ChangeRates()  # noqa: RUF009


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a program."""

    digest: str
    """Over every answer and its time."""
    virtual_seconds: float
    counts: Counter[str]


def crashing(seed: int) -> Surroundings:
    """A server with a journal that is killed time and again, and set in one way or another."""
    chance = random.Random(f"surroundings of {seed}")
    settings = Settings(
        journal=chance.choice(["files", "files", "rows"]),
        state_seconds=chance.choice([0.0, 0.0, 0.05, 0.5, 1e9]),
        state_cost=chance.choice([0.01, 1e9]),
        state_bytes=chance.choice([2000, 20_000, 2**40]),
        max_request_losses=10**9,
        max_pending_bytes=chance.choice([1, 100, 64 * 2**20]),
        max_snapshot_file_bytes=chance.choice([200, 8 * 2**30, 8 * 2**30]),
        sweep_seconds=chance.choice([0.5, 10.0]),
    )
    return Surroundings(
        settings=settings,
        rates=FaultRates(refused=0.02, slow=0.005, slow_seconds=5.0, lost=chance.choice([0, 0.002, 0.02]), full=0.1),
        disk=DiskRates(
            seconds=chance.choice([0.0001, 0.005, 0.2]),
            killed=chance.choice([0.0, 0.003, 0.02]),
            locked=chance.choice([0.0, 0.001, 0.01]),
            locked_seconds=chance.choice([0.5, 40.0]),
            cut=chance.choice([0.0, 0.003]),
        ),
        crashes=CrashRates(seconds=chance.choice([0.3, 3.0, 20.0]), num_crashes=chance.choice([1, 3, 10])),
        habits=Habits(
            gaps=chance.choice([0.0, 0.03]),
            late=chance.choice([0.0, 0.2]),
            saves=0.1,
            loads=0.1,
            deletes=0.3,
            cuts=chance.choice([0.0, 0.05]),
            silences=0.005,
        ),
    )


def changing(seed: int) -> ChangeRates:
    """Several workers, of which some leave, and more come."""
    chance = random.Random(f"changes of {seed}")
    return ChangeRates(
        seconds=chance.choice([0.3, 3.0, 20.0]),
        num_changes=chance.choice([0, 5, 30]),
        drain_seconds=chance.choice([0.0, 0.1, 5.0]),
    )


def simulate(
    seed: int,
    *,
    num_clients: int,
    num_requests: int,
    surroundings: Surroundings | None = None,
    plans: Sequence[WorkerPlan] = ONE_WORKER,
) -> Report:
    """Run a program; `surroundings` None: those of `crashing`, and with several workers of `changing`.

    Raises:
        BrokenPromiseError: an answer, or what was left at the end, is not as it must be.
    """
    keys = {f"tml-client-{index:04}": "" for index in range(num_clients)}
    around = crashing(seed) if surroundings is None else surroundings
    if len(plans) > 1 and surroundings is None:
        around = replace(around, changes=changing(seed))

    async def main() -> Report:
        server = SimulatedServer(
            Path(folder),
            keys,
            settings=around.settings,
            rates=around.rates,
            disk_rates=around.disk,
            crash_rates=around.crashes,
            plans=plans,
            changes=around.changes,
            seed=seed,
        )
        try:
            return await run(server)
        finally:
            server.bury()

    async def run(server: SimulatedServer) -> Report:
        await server.open()
        ledger = Ledger(num_requests)
        async with asyncio.TaskGroup() as clients:
            for key in keys:
                clients.create_task(Client(key, server, ledger, seed, around.habits).live(), name=key)
        await server.calm()
        settings = around.settings
        await asyncio.sleep(settings.session_seconds + settings.result_seconds + 100.0)
        if held := server.leftovers():
            raise BrokenPromiseError(f"all sessions have ended, and the server still holds {held}")
        await server.close()
        ledger.counts.update({f"faults: {name}": number for name, number in server.faults.counts.items()})
        ledger.counts.update({f"server: {name}": number for name, number in server.counts.items()})
        return Report(
            digest=ledger.digest.hexdigest(),
            virtual_seconds=asyncio.get_running_loop().time(),
            counts=ledger.counts,
        )

    try:
        with (
            tempfile.TemporaryDirectory(dir=_memory()) as folder,
            World(seed) as world,
            patch("cookhouse.server.storage.journal.segments.MAX_ROW_BYTES", _ROW_BYTES),
            _quiet(),
        ):
            return world.run(main())
    except* Exception as broken:
        first: BaseException = broken
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        options = f" --seed {seed} --clients {num_clients} --requests {num_requests}{_in_words(plans)}"
        if surroundings is not None:
            rates = asdict(around.rates).items()
            options += " --without-journal" + "".join(f" --{name.replace('_', '-')} {rate:g}" for name, rate in rates)
        words = str(first) if isinstance(first, BrokenPromiseError) else repr(first)
        raise BrokenPromiseError(f"{words}\nRepeat it: python -m tests.simulation{options}") from first


def _in_words(plans: Sequence[WorkerPlan]) -> str:
    """As options of the command line."""
    num_samplers = sum(not plan.trains for plan in plans)
    if num_samplers:
        return f" --num-trainers {len(plans) - num_samplers} --num-samplers {num_samplers}"
    return f" --num-workers {len(plans)}" if len(plans) > 1 else ""


def _memory() -> str | None:
    """Where files cost least."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing of faults that were asked for."""
    log = logging.getLogger("cookhouse")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
