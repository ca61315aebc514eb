"""Catches a clock that was set, and with it checkpoints that go a day early. Times are seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW, fill

from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.clock import Clock

HOUR, DAY = 3600.0, 86400.0
TTL = 2 * HOUR


@dataclass
class Machine:
    """Whose clock may be set, and whose server may be down for a while."""

    true: float = 1e9
    error: float = 0.0
    """Of its clock."""

    def start(self) -> Clock:
        began = self.true
        return Clock(lambda: self.true + self.error, lambda: self.true - began)


Step = Callable[[Machine, Clock], Clock | None]


def wait(seconds: float) -> Step:
    def step(machine: Machine, _clock: Clock) -> None:
        machine.true += seconds

    return step


def jump(seconds: float) -> Step:
    def step(machine: Machine, _clock: Clock) -> None:
        machine.error += seconds

    return step


def restart(down: float = 0.0, jumped: float = 0.0) -> Step:
    def step(machine: Machine, _clock: Clock) -> Clock:
        machine.true += down
        machine.error += jumped
        return machine.start()

    return step


def is_over_after(steps: Sequence[Step], before: Sequence[Step] = ()) -> bool:
    """Whether a checkpoint of two hours, saved between `before` and `steps`, is over behind them."""
    machine = Machine()
    clock, end = machine.start(), None
    for number, step in enumerate((*before, *steps)):
        if number == len(before):
            end = clock.end_of(TTL)
        clock = step(machine, clock) or clock
    return clock.is_over(end)


@pytest.mark.parametrize("jumped", [DAY, -DAY])
@pytest.mark.parametrize(
    "steps",
    [
        lambda jumped: (jump(jumped), wait(HOUR)),
        lambda jumped: (wait(HOUR), jump(jumped), wait(HOUR / 2), jump(-jumped), wait(HOUR / 4)),
        lambda jumped: (restart(jumped=jumped), wait(HOUR - 1)),
        lambda jumped: (restart(jumped=jumped), wait(HOUR / 2), jump(-jumped), wait(HOUR)),
    ],
    ids=["up", "up and set right", "down", "down and set right within an hour"],
)
def test_a_jump_ends_nothing_early(steps: Callable[[float], Sequence[Step]], jumped: float) -> None:
    assert not is_over_after(steps(jumped), (wait(5 * HOUR),))


@pytest.mark.parametrize("jumped", [DAY, -DAY])
def test_what_begins_while_the_clock_is_wrong_lives_as_long(jumped: float) -> None:
    """Would catch an end that is a day early once the clock is set right."""
    assert not is_over_after((jump(-jumped), wait(2 * HOUR - 1)), (wait(5 * HOUR), jump(jumped)))
    assert not is_over_after((jump(-jumped), wait(2 * HOUR - 1)), (restart(jumped=jumped),))


@pytest.mark.parametrize(
    "steps",
    [
        (wait(2 * HOUR),),
        (restart(down=DAY), wait(HOUR)),
        (wait(HOUR), restart(), wait(HOUR)),
        (wait(HOUR), jump(DAY), wait(HOUR)),
        (wait(HOUR), jump(-DAY), wait(DAY + HOUR)),
    ],
    ids=["up", "down", "restarted", "forward", "back"],
)
def test_what_is_due_goes(steps: Sequence[Step]) -> None:
    """Would catch checkpoints that stay for ever."""
    assert is_over_after(steps)


def test_nothing_ends_in_the_first_hour() -> None:
    assert not is_over_after((restart(down=DAY), wait(HOUR - 1)))
    assert not is_over_after((restart(down=DAY), wait(HOUR - 1), restart(), wait(HOUR - 1)))


def test_a_checkpoint_is_deleted_when_both_say_so(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch a sweep, a list or a load that asks another clock."""
    machine = Machine()
    store = open_store(tmp_path / "server.db", machine.start())
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    checkpoints.write(replace(NEW, ttl_seconds=int(TTL)), fill)
    for step in (jump(DAY), wait(TTL - 1)):
        step(machine, store.clock)
        checkpoints.sweep()
        assert len(store.checkpoints("me")[0]) == 1
    wait(1)(machine, store.clock)
    assert store.checkpoints("me") == ([], 0)
    checkpoints.sweep()
    assert store.checkpoint_ids() == set()
    assert list((tmp_path / "checkpoints").iterdir()) == []
