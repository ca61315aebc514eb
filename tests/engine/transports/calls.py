"""What the tests of transports share."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from cookhouse.engine.contract import (
    Account,
    Command,
    Event,
    ForwardBackward,
    Lost,
    Pass,
    Read,
    TrainingDatum,
    Up,
    Worker,
    WorkerOptions,
)

LONG_SECONDS = 60.0
ACCOUNT = Account("tenant", "session")
FAKE_CHILD = (sys.executable, "-m", "tests.engine.transports.fake_child")


def options(folder: Path) -> WorkerOptions:
    return WorkerOptions(
        worker="w1", folder=folder, max_snapshot_bytes=2**20, max_snapshot_file_bytes=2**20, max_pass_tokens=1024
    )


def do(what: str, command_id: str = "do") -> Read:
    """Has `fake_child` do something."""
    return Read(command_id=command_id, account=ACCOUNT, url=what, offset=0, num_bytes=0)


def a_pass(num_rows: int, num_tokens: int, command_id: str = "1") -> Pass:
    """Row i counts from i on."""
    rows = [
        TrainingDatum(
            tokens_T=np.arange(num_tokens) + index,
            loss_fn_inputs={"weights": np.full(num_tokens, index, dtype=np.float32)},
        )
        for index in range(num_rows)
    ]
    request = ForwardBackward(model_id="m", data_D=rows, loss_fn="cross_entropy", loss_fn_config={"a": 0.5, "b": "c"})
    return Pass(command_id=command_id, account=ACCOUNT, model_id="m", request=request)


async def told(worker: Worker, last: Callable[[Event], bool]) -> list[Event]:
    """What it tells until an event of some kind."""
    events: list[Event] = []
    while not any(last(event) for event in events):
        new = await asyncio.wait_for(worker.events(), LONG_SECONDS)
        assert new, f"nothing more came after {events}"
        events += new
    return events


def is_lost(event: Event) -> bool:
    return isinstance(event, Lost)


def is_up(event: Event) -> bool:
    return isinstance(event, Up)


async def answer(worker: Worker, command: Command) -> Event:
    worker.submit([command])
    return (await told(worker, lambda event: getattr(event, "command_id", None) == command.command_id))[-1]


async def reason(worker: Worker) -> str:
    """Why it was lost."""
    lost = (await told(worker, is_lost))[-1]
    assert isinstance(lost, Lost)
    assert await worker.events() == []
    return lost.reason


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 5 * LONG_SECONDS))
