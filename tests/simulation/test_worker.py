"""Catches a simulated worker whose turns take no time, that outlives its loss, or that differs the second time."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from cookhouse.engine.contract import Command, Done, Event, Failed, Forget, Lost, Up, WorkerOptions
from cookhouse.engine.simulated import Costs, Faults, SimulatedEngine, WorkerLostError, no_faults
from cookhouse.engine.transports.simulated import Simulated
from tests.engine.worker.driver import ALICE, BASE, BOB, Driver
from tests.simulation.virtual import World

COSTS = Costs(
    pass_seconds=10.0,
    pass_token_seconds=0.0,
    step_seconds=1.0,
    decode_seconds=0.5,
    decode_token_seconds=0.0,
    prompt_token_seconds=0.0,
    save_seconds=0.0,
)


class Recorded:
    """A worker, and what it told when."""

    def __init__(self, folder: Path, *, costs: Costs = COSTS, faults: Faults = no_faults) -> None:
        options = WorkerOptions(
            worker="w1", folder=folder, max_snapshot_bytes=2**20, max_snapshot_file_bytes=2**20, max_pass_tokens=100
        )
        self.worker = Simulated(lambda spend: SimulatedEngine([BASE], costs=costs, spend=spend, faults=faults), options)
        self.make = Driver(self.worker)
        """For the commands that it makes: this worker runs on another event loop."""
        self.told: list[tuple[float, Event]] = []

    async def until(self, count: int) -> None:
        """Until so many commands have been answered, or the worker has ended."""
        while sum(isinstance(event, Done | Failed) for _, event in self.told) < count:
            events = await self.worker.events()
            if not events:
                return
            self.told += [(asyncio.get_running_loop().time(), event) for event in events]

    def at(self, command: Command) -> float:
        """When a command was answered."""
        return next(at for at, event in self.told if getattr(event, "command_id", "") == command.command_id)


def test_turns_take_the_time_that_they_cost(tmp_path: Path) -> None:
    """Would catch answers that are told before the work behind them is over."""

    async def main() -> None:
        recorded = Recorded(tmp_path)
        make = recorded.make
        commands = [make.create("m"), make.a_pass("m"), make.step("m")]
        recorded.worker.submit(commands)
        await recorded.until(3)
        assert [recorded.at(command) for command in commands] == [0.0, 10.0, 11.0]
        sample = make.sample(max_tokens=4)
        recorded.worker.submit([sample])
        await recorded.until(4)
        assert recorded.at(sample) == 13.0
        shared = [make.create("n", BOB), make.a_pass("n", account=BOB), make.a_pass("m")]
        recorded.worker.submit(shared)
        await recorded.until(7)
        assert recorded.at(shared[1]) == recorded.at(shared[2]) == 23.0
        assert await recorded.worker.close(1.0)
        assert await recorded.worker.events() == []

    with World(0) as world:
        world.run(main())


def test_it_sleeps_on_a_real_clock(tmp_path: Path) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        recorded = Recorded(tmp_path, costs=Costs(step_seconds=0.05))
        recorded.worker.submit([recorded.make.create("m"), recorded.make.step("m")])
        await recorded.until(2)
        return loop.time() - began

    assert asyncio.run(main()) >= 0.05


def a_program(make: Driver) -> Sequence[Command]:
    """Work of two owners."""
    commands: list[Command] = []
    for model_id, account in (("m", ALICE), ("n", BOB)):
        commands += [make.create(model_id, account), make.publish(model_id, f"s{model_id}", account)]
        for _ in range(5):
            commands += [make.a_pass(model_id, account=account), make.step(model_id, account)]
            commands += [make.sample(f"s{model_id}", account)]
    return commands


@pytest.mark.parametrize("num_calls", range(1, 30, 2))
def test_a_worker_is_lost_between_any_two_calls(tmp_path: Path, num_calls: int) -> None:
    """Would catch a loop that goes on, or answers for a command, after its end."""
    left = [num_calls]

    def faults(_method: str) -> float:
        left[0] -= 1
        if left[0] == 0:
            raise WorkerLostError("the power is gone")
        return 0.0

    async def main() -> None:
        recorded = Recorded(tmp_path, faults=faults)
        commands = a_program(recorded.make)
        recorded.worker.submit(commands)
        await recorded.until(len(commands))
        events = [event for _, event in recorded.told]
        assert events[-1] == Lost(worker="w1", reason="the power is gone")
        assert sum(isinstance(event, Lost) for event in events) == 1
        assert isinstance(events[0], Up)
        recorded.worker.submit([recorded.make.create("o")])
        assert await recorded.worker.events() == []
        answered = [event.command_id for event in events if isinstance(event, Done | Failed)]
        assert len(answered) == len(set(answered)) < len(commands)

    with World(0) as world:
        world.run(main())


def history(folder: Path, seed: int) -> str:
    """All that a worker tells, and when, of a program with faults and cancels."""
    chance = random.Random(seed)

    def faults(method: str) -> float:
        if chance.random() < 0.2:
            raise RuntimeError(f"{method} fails")
        return chance.choice([0.0, 3.0])

    async def main() -> str:
        recorded = Recorded(folder, faults=faults)
        commands = a_program(recorded.make)

        async def submit() -> None:
            for command in commands:
                await asyncio.sleep(chance.random() * 4)
                recorded.worker.submit([command])
                if chance.random() < 0.1:
                    canceled = chance.choice(commands).command_id
                    recorded.worker.submit([Forget(command_id="f", account=ALICE, command_ids=(canceled,))])

        submitting = asyncio.create_task(submit())
        await recorded.until(len(commands))
        await submitting
        return repr([(at, content(event)) for at, event in recorded.told])

    with World(seed) as world:
        return world.run(main())


def content(event: Event) -> dict[str, object]:
    """An event of a failure only what is told."""
    told = {name: getattr(event, name) for name in event.__slots__}
    return {"event": type(event).__name__, **{name: getattr(value, "message", value) for name, value in told.items()}}


def test_it_is_the_same_from_the_same_seed(tmp_path: Path) -> None:
    """Would catch a clock, a thread or a set's order in what a failing seed is to repeat."""
    assert history(tmp_path, 1) == history(tmp_path, 1)
    assert history(tmp_path, 1) != history(tmp_path, 2)
