"""Catches a tenant who waits for another's files, and commands of one model or snapshot that overtake each other."""

from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    AdamStep,
    Command,
    Fetch,
    Forget,
    Inspect,
    Load,
    LoraSpec,
    Publish,
    Read,
    Sample,
    SampleRequest,
    Step,
)
from cookhouse.engine.transports.ray.command_order import CommandOrder
from tests.engine.transports.calls import ACCOUNT

WEIGHTS = {"base_model": "base", "lora": LoraSpec(), "url": "file:///weights"}


def load(command_id: str, model_id: str) -> Load:
    return Load(command_id=command_id, account=ACCOUNT, model_id=model_id, with_optimizer=True, **WEIGHTS)  # type: ignore[arg-type]


def fetch(command_id: str, snapshot_id: str) -> Fetch:
    return Fetch(command_id=command_id, account=ACCOUNT, snapshot_id=snapshot_id, **WEIGHTS)  # type: ignore[arg-type]


def step(command_id: str, model_id: str) -> Step:
    return Step(command_id=command_id, account=ACCOUNT, model_id=model_id, adam=AdamStep(learning_rate=0.1))


def publish(command_id: str, model_id: str, snapshot_id: str) -> Publish:
    return Publish(command_id=command_id, account=ACCOUNT, model_id=model_id, snapshot_id=snapshot_id)


def sample(command_id: str, snapshot_id: str | None) -> Sample:
    request = SampleRequest(
        request_id=command_id, base_model="base", snapshot_id=snapshot_id, prompt_T=np.zeros(1, dtype=np.int64), seed=0
    )
    return Sample(command_id=command_id, account=ACCOUNT, request=request)


def forget(**what: Any) -> Forget:
    return Forget(command_id="", account=ACCOUNT, **what)


def ids(commands: Any) -> list[str]:
    return ["end" if command is None else command.command_id for command in commands]


def held(*commands: Command | None) -> CommandOrder:
    order = CommandOrder()
    for command in commands:
        order.put(command, is_transfer=isinstance(command, Load | Fetch))
    return order


def test_others_do_not_wait_for_files() -> None:
    order = held(load("1", "a"), step("2", "a"), step("3", "b"), fetch("4", "s"), sample("5", "s"), sample("6", None))
    ready, to_carry = order.take()
    assert (ids(ready), ids(to_carry)) == (["3", "6"], ["1", "4"])
    assert order.take() == ([], [])
    order.arrived(fetch("4", "s"))
    assert ids(order.take()[0]) == ["4", "5"]
    order.put(step("7", "a"))
    assert order.take() == ([], [])
    order.arrived(load("1", "a"))
    assert ids(order.take()[0]) == ["1", "2", "7"]


def test_what_waits_holds_what_comes_after_it() -> None:
    """A model's publication waits for its files, and samples of that for it."""
    order = held(load("1", "a"), publish("2", "a", "s"), sample("3", "s"), load("4", "a"))
    ready, to_carry = order.take()
    assert (ids(ready), ids(to_carry)) == ([], ["1"])
    order.arrived(load("1", "a"))
    ready, to_carry = order.take()
    assert (ids(ready), ids(to_carry)) == (["1", "2", "3"], ["4"])


def test_the_end_waits_for_all() -> None:
    """Would catch an end before the last command."""
    order = held(load("1", "a"), step("2", "a"), None)
    assert ids(order.take()[0]) == []
    order.arrived(load("1", "a"))
    assert ids(order.take()[0]) == ["1", "2", "end"]


@pytest.mark.parametrize(
    "one",
    [
        Inspect(command_id="5", account=ACCOUNT),
        Read(command_id="5", account=ACCOUNT, url="worker://w1/f", offset=0, num_bytes=1),
    ],
)
def test_a_look_at_the_worker_neither_waits_nor_holds_up(one: Command) -> None:
    """Would catch one look at /metrics that stops every tenant while files are on their way."""
    order = held(load("1", "a"), one, step("9", "b"))
    assert ids(order.take()[0]) == ["5", "9"]


@pytest.mark.parametrize(
    ("one", "dropped", "sent"),
    [
        (forget(model_ids=("a",)), ["1", "2", "3"], ["4", ""]),
        (forget(command_ids=("1",)), ["1"], ["2", "3", "4", ""]),
        (forget(command_ids=("2", "unknown")), ["2"], [""]),
        (forget(snapshot_ids=("s",)), ["3"], ["4", ""]),
        (forget(model_ids=("b",), urls=("worker://w1/f",)), [], [""]),
    ],
)
def test_forget_is_done_before_what_waits(one: Forget, dropped: list[str], sent: list[str]) -> None:
    """Would catch a session that cannot be ended while its files are on their way, and work of nobody's after it."""
    order = held(load("1", "a"), step("2", "a"), publish("3", "a", "s"), sample("4", "s"))
    assert order.take()[0] == []
    assert ids(order.drop(one)) == dropped
    order.put(one)
    assert ids(order.take()[0]) == sent


def test_files_that_arrive_for_what_was_dropped_change_nothing() -> None:
    order = held(fetch("1", "s"), sample("2", "s"))
    order.take()
    order.drop(forget(snapshot_ids=("s",)))
    order.put(fetch("3", "s"), is_transfer=True)
    order.arrived(fetch("1", "s"))
    ready, to_carry = order.take()
    assert (ids(ready), ids(to_carry)) == (["2"], ["3"])
