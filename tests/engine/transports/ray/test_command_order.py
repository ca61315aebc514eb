"""Catches a tenant who waits for another's files, and commands of one model or snapshot that overtake each other."""

from typing import Any

import numpy as np
import pytest

from cookhouse.engine.contract import (
    AdamStep,
    Command,
    Fetch,
    Forget,
    Load,
    LoraSpec,
    Publish,
    Sample,
    SampleRequest,
    Step,
)
from cookhouse.engine.transports.ray.command_order import CommandOrder
from tests.engine.transports.calls import ACCOUNT, do

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


@pytest.mark.parametrize(
    "one", [forget(model_ids=("a",)), forget(command_ids=("1",)), forget(command_ids=("2",)), do("host"), None]
)
def test_what_is_about_it_or_about_all_waits_too(one: Command | None) -> None:
    """Would catch a sample that is canceled before it is there, and then drawn; an end before the last command."""
    order = held(load("1", "a"), step("2", "a"), one, step("9", "b"))
    ready, _ = order.take()
    assert ids(ready) == ([] if one is None or not isinstance(one, Forget) else ["9"])
    order.arrived(load("1", "a"))
    assert len(order.take()[0]) == 4 - len(ready)
