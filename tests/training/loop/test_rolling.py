"""Rolling checkpoints: the newest is kept, a later save takes its place, and what is recorded is always there."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.recipes.events import Events

from cookhouse.errors import ServiceError
from cookhouse.settings import TrainingSettings
from cookhouse.training import FakeService, RollingSaves

pytestmark = pytest.mark.anyio


def rolling(kit: Any, service: FakeService, every: int) -> RollingSaves:
    settings = TrainingSettings(rolling_save_every=every, rolling_ttl_seconds=7200)
    return RollingSaves(settings, service, kit.checkpoints)


def saved(kit: Any) -> list[str]:
    return [checkpoint.name for checkpoint in kit.checkpoints.read()]


async def test_the_newest_takes_the_place_of_the_one_before(kit: Any) -> None:
    """Catches also a terminal with a line for each of them."""
    service, told = FakeService(), Events()
    await (await kit.loop(service, total_steps=6, rolling=rolling(kit, service, 1), sinks=[told])).run()
    assert saved(kit) == ["000005-rolling"]
    assert "training.checkpoint" not in told.names
    assert list(service.states) == [kit.checkpoints.read()[0].state_path]


async def test_periodic_saves_stay_and_take_its_place(kit: Any) -> None:
    """Catches a rolling save where there is a periodic one, and a periodic one that is deleted."""
    service = FakeService()
    await (await kit.loop(service, total_steps=8, save_every=3, rolling=rolling(kit, service, 2))).run()
    assert saved(kit) == ["000003", "000006"]
    assert set(service.states) == {checkpoint.state_path for checkpoint in kit.checkpoints.read()}
    kinds = [call.number for call in service.calls if call.kind == "save_state" and call.phase == "submit"]
    assert len(kinds) == 4  # after 2, 3, 4 and 6


async def test_what_is_recorded_is_there_whenever_the_run_breaks(new_kit: Callable[[str], Any]) -> None:
    """Catches a checkpoint that is deleted before the one that takes its place is on disk."""
    for request in range(24):
        kit, service = new_kit(f"run{request}"), FakeService()
        count = iter(range(100))

        async def gate(kind: str, number: int, count: Any = count, request: int = request) -> None:
            del kind, number
            if next(count) == request:
                raise ServiceError("gone")

        service.gate = gate
        with contextlib.suppress(ServiceError):
            await (await kit.loop(service, total_steps=5, rolling=rolling(kit, service, 1))).run()
        assert {checkpoint.state_path for checkpoint in kit.checkpoints.read()} <= set(service.states)
        assert len(saved(kit)) <= 2


async def test_an_interrupt_saves_for_good_what_was_saved_as_rolling(kit: Any) -> None:
    """Catches a run that is to be resumed in a month from a checkpoint that the service deletes in a week."""
    service = FakeService()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 2):
            kit.interrupt.request()

    service.gate = gate
    await (await kit.loop(service, total_steps=9, rolling=rolling(kit, service, 1))).run()
    assert [name for name in saved(kit) if name.endswith("rolling")] == []
    assert len(saved(kit)) == len(service.states) == 1


async def test_the_one_that_a_run_went_on_from_is_not_deleted(kit: Any) -> None:
    service = FakeService()

    async def gate(kind: str, number: int) -> None:
        if (kind, number) == ("optim_step", 3):
            raise ServiceError("gone")

    service.gate = gate
    with pytest.raises(ServiceError):
        await (await kit.loop(service, total_steps=8, rolling=rolling(kit, service, 1))).run()
    went_on_from = kit.checkpoints.last_state()
    assert went_on_from.rolling
    later = FakeService(states=service.states)
    await (await kit.loop(later, total_steps=8, rolling=rolling(kit, later, 1))).run()
    assert kit.checkpoints.read()[0] == went_on_from
    assert went_on_from.state_path in later.states
    assert len(saved(kit)) == 2


async def test_one_that_cannot_be_deleted_does_not_end_the_run(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    service = FakeService()

    async def gate(kind: str, number: int) -> None:
        del number
        if kind == "delete_checkpoint":
            raise ServiceError("no")

    service.gate = gate
    with caplog.at_level(logging.WARNING):
        await (await kit.loop(service, total_steps=4, rolling=rolling(kit, service, 1))).run()
    assert saved(kit) == ["000003-rolling"]
    assert "checkpoint 000002-rolling failed (no); the service keeps it until its time to live is over" in caplog.text


async def test_deleting_keeps_no_step_waiting(kit: Any) -> None:
    """Catches a loop that waits for a deletion before it submits, or reads, the next step."""
    service = FakeService()

    async def gate(kind: str, number: int) -> None:
        if kind == "delete_checkpoint":
            await never_in_training.wait()
        if (kind, number) == ("optim_step", 7):
            never_in_training.set()

    never_in_training = asyncio.Event()
    service.gate = gate
    async with asyncio.timeout(20):
        await (await kit.loop(service, total_steps=8, rolling=rolling(kit, service, 1))).run()
    assert saved(kit) == ["000007-rolling"]
