"""A random program of many clients against a simulated server, the same for the same seed."""

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cookhouse.server.settings import Settings
from tests.simulation.clients import Client, Habits, Ledger
from tests.simulation.history import BrokenPromiseError
from tests.simulation.server import FaultRates, SimulatedServer
from tests.simulation.virtual import World

FAULTS = FaultRates(refused=0.002, failed=0.002, slow=0.001, lost=0.00002)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a program."""

    digest: str
    """Over every answer and its time."""
    virtual_seconds: float
    counts: Counter[str]


def simulate(
    seed: int,
    *,
    num_clients: int,
    num_requests: int,
    rates: FaultRates = FAULTS,
    habits: Habits = Habits(),  # noqa: B008
) -> Report:
    """Run a program.

    Raises:
        BrokenPromiseError: an answer, or what was left at the end, is not as it must be.
    """
    keys = {f"tml-client-{index:04}": "" for index in range(num_clients)}

    async def main() -> Report:
        server = SimulatedServer(Path(folder), keys, rates=rates, seed=seed)
        await server.service.open()
        ledger = Ledger(num_requests)
        async with asyncio.TaskGroup() as clients:
            for key in keys:
                clients.create_task(Client(key, server, ledger, seed, habits).live(), name=key)
        settings: Settings = server.service.settings
        await asyncio.sleep(settings.session_seconds + settings.result_seconds + 10 * settings.sweep_seconds)
        held = server.leftovers()
        # This task, the sweeper, the worker and the reader of its events.
        if held.pop("tasks") > 4 or held:
            raise BrokenPromiseError(f"all sessions have ended, and the server still holds {held}")
        await server.service.close()
        ledger.counts.update({f"faults: {name}": number for name, number in server.faults.counts.items()})
        return Report(
            digest=ledger.digest.hexdigest(),
            virtual_seconds=asyncio.get_running_loop().time(),
            counts=ledger.counts,
        )

    try:
        with tempfile.TemporaryDirectory() as folder, World(seed) as world, _quiet():
            return world.run(main())
    except* BrokenPromiseError as broken:
        first: BaseException = broken
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        options = "".join(f" --{name.replace('_', '-')} {rate:g}" for name, rate in asdict(rates).items())
        raise BrokenPromiseError(
            f"{first}\nRepeat it: python -m tests.simulation --seed {seed} --clients {num_clients} "
            f"--requests {num_requests}{options}"
        ) from first


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
