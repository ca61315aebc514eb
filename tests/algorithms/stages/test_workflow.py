"""Wiring is checked before anything runs, described from the objects that run, and changed from outside."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cookhouse.algorithms.base.state import Steps
from cookhouse.errors import InputError, UnknownNameError
from cookhouse.settings import SupervisedSettings
from cookhouse.training import Objective
from cookhouse.workflows import RunContext, SupervisedState, Workflow, stage, supervised_workflow
from cookhouse.workflows.supervised.rows import RunData
from cookhouse.workflows.supervised.state import Tokenized

SUPERVISED = supervised_workflow(SupervisedSettings())


def test_the_supervised_workflow_is_wired() -> None:
    SUPERVISED.check({"service"})


@pytest.mark.parametrize("name", [each.name for each in SUPERVISED.setup])
def test_every_setup_stage_is_needed_by_a_later_one(name: str) -> None:
    # Catches declarations that say nothing: without any one of them, something must be missing.
    with pytest.raises(InputError, match="which is not there by then"):
        SUPERVISED.without(name).check({"service"})


def test_missing_port_is_named() -> None:
    with pytest.raises(InputError, match="init_session needs the port service, which has no adapter"):
        SUPERVISED.check(set())


def test_unknown_field_is_named() -> None:
    @stage()
    async def misspelled(datasat: RunData) -> None: ...

    with pytest.raises(InputError, match="misspelled takes datasat, which is no field of SupervisedState; it has"):
        SUPERVISED.inserted(misspelled, after="load_dataset").check({"service"})


async def _takes_dict(data: dict[str, int]) -> None: ...


async def _takes_part_of_a_union(registered_model: str) -> None: ...


async def _takes_another_config(config: RunContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_takes_dict, r"takes data as dict\[str, int\], and the state has RunData"),
        (_takes_part_of_a_union, r"takes registered_model as str, and the state has ModelVersion \| None"),
        (_takes_another_config, "takes config as RunContext, and the state has SupervisedSettings"),
    ],
)
def test_a_parameter_of_another_type_than_its_field_is_refused(function: Callable[..., Any], said: str) -> None:
    """Catches a stage that is checked by names alone, and fails in the middle of a run."""
    with pytest.raises(InputError, match=f"stage {function.__name__} {said}"):
        SUPERVISED.inserted(stage()(function), before="evaluate").check({"service"})


async def _returns_none_of_them() -> bytes:
    return b""


async def _returns_one_that_is_none(data: RunData) -> tuple[RunData, bytes]:
    return data, b""


@pytest.mark.parametrize("function", [_returns_none_of_them, _returns_one_that_is_none])
def test_a_result_that_no_field_holds_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(
        InputError, match=f"{function.__name__} returns bytes, and SupervisedState has no field of that type"
    ):
        SUPERVISED.inserted(stage()(function), after="load_dataset").check({"service"})


@dataclass(kw_only=True)
class Counted(SupervisedState):
    count: int = field(init=False)


@dataclass(kw_only=True)
class CountedTwice(Counted):
    total: int = 0


@stage()
async def count_conversations(data: RunData) -> int:
    return len(data.conversations)


def test_a_state_of_ones_own_has_more_fields() -> None:
    wider = SUPERVISED.with_state(Counted)
    wider.inserted(count_conversations, after="load_dataset").check({"service"})


def test_a_result_that_several_fields_may_hold_is_refused() -> None:
    """Catches a value that silently goes to the first of them."""
    wider = SUPERVISED.with_state(CountedTwice)
    with pytest.raises(InputError, match="returns int, and CountedTwice has several: count, total"):
        wider.inserted(count_conversations, after="load_dataset").check({"service"})


def test_who_could_return_what_is_missing_is_named() -> None:
    @stage()
    async def count(tokenized: Tokenized) -> None: ...

    with pytest.raises(
        InputError, match=r"stage count takes tokenized.*build_supervised_dataset returns it: put count after"
    ):
        SUPERVISED.inserted(count, before="load_dataset").check({"service"})
    SUPERVISED.inserted(count, after="build_supervised_dataset").check({"service"})
    unwritten = SUPERVISED.without("build_supervised_dataset")
    with pytest.raises(InputError, match="no stage of this workflow returns it"):
        unwritten.inserted(count, before="load_dataset").check({"service"})


def test_nobody_can_count_on_what_a_conditional_stage_returns() -> None:
    """Catches a check that takes a stage for run which may be passed over."""

    @stage(when=lambda config: config.seed > 0)
    async def load_sometimes(config: SupervisedSettings) -> tuple[RunData, Objective[None]]:
        raise NotImplementedError(config.seed)

    with pytest.raises(InputError, match=r"load_sometimes returns it: put .* after that, unconditionally"):
        SUPERVISED.replaced("load_dataset", load_sometimes).check({"service"})
    assert "load_sometimes?" in SUPERVISED.replaced("load_dataset", load_sometimes).describe()


def test_a_slot_takes_what_is_there_by_then() -> None:
    @stage()
    def too_early(steps: Steps, count: int) -> Any: ...

    wider = SUPERVISED.with_state(Counted)
    with pytest.raises(InputError, match="too_early takes count, which is not there by then"):
        wider.replaced("loop.get_batch", too_early).check({"service"})


def test_stages_are_changed_by_name() -> None:
    @stage()
    async def say(context: RunContext) -> None: ...

    def names(workflow: Workflow[SupervisedState]) -> list[str]:
        return [each.name for each in workflow.stages()]

    before = names(SUPERVISED)
    assert names(SUPERVISED.inserted(say, before="evaluate"))[-4:] == ["say", "evaluate", "register_model", "cleanup"]
    assert names(SUPERVISED.replaced("load_dataset", say)) == ["say", *before[1:]]
    assert names(SUPERVISED.replaced("cleanup", say)) == [*before[:-1], "say"]

    @stage()
    def my_log() -> Any:
        return print

    assert names(SUPERVISED.replaced("loop.log_step_metrics", my_log)).index("my_log") == before.index(
        "log_step_metrics"
    )
    assert names(SUPERVISED) == before


def test_a_change_that_cannot_be_is_refused() -> None:
    @stage()
    async def say(context: RunContext) -> None: ...

    @stage()
    def slot() -> None: ...

    with pytest.raises(UnknownNameError, match="did you mean load_dataset"):
        SUPERVISED.without("load_datset")
    with pytest.raises(InputError, match="slot of the loop"):
        SUPERVISED.replaced("loop.get_batch", say)
    with pytest.raises(InputError, match="slot of the loop"):
        SUPERVISED.replaced("load_dataset", slot)
    with pytest.raises(InputError, match="one of the two"):
        SUPERVISED.inserted(say)
    with pytest.raises(InputError, match="two stages are called load_dataset"):
        SUPERVISED.inserted(SUPERVISED.setup[0], after="init_session").check({"service"})


def test_describe_prints_the_stages_by_name() -> None:
    names = [line.split()[-1] for line in SUPERVISED.describe().splitlines()]
    assert names == [
        "supervised",
        "setup", "load_dataset", "init_tokenizer", "build_supervised_dataset", "init_evaluators", "init_session",
        "loop", "get_batch", "forward_backward", "optim_step", "log_step_metrics", "keep_examples", "checkpoint?",
        "evaluate?",
        "final", "save_final", "evaluate", "register_model?", "cleanup",
    ]  # fmt: skip
