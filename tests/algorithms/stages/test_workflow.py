"""Wiring is checked before anything runs, described from the objects that run, and changed from outside."""

from dataclasses import dataclass, field

import pytest

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.settings import SupervisedSettings
from cookhouse.workflows import SlotStage, SupervisedState, Workflow, stage, supervised_workflow

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
    @stage(writes=("datasat",))
    async def misspelled(state: SupervisedState) -> None: ...

    with pytest.raises(InputError, match="misspelled writes datasat, which is no field of SupervisedState"):
        SUPERVISED.inserted(misspelled, before="load_dataset").check({"service"})


def test_who_could_write_what_is_missing_is_named() -> None:
    @stage(reads=("dataset",))
    async def count(state: SupervisedState) -> None: ...

    with pytest.raises(
        InputError, match=r"stage count reads dataset.*build_supervised_dataset writes it: put count after"
    ):
        SUPERVISED.inserted(count, before="load_dataset").check({"service"})
    SUPERVISED.inserted(count, after="build_supervised_dataset").check({"service"})
    unwritten = SUPERVISED.without("build_supervised_dataset")
    with pytest.raises(InputError, match="no stage of this workflow writes it"):
        unwritten.inserted(count, before="load_dataset").check({"service"})


def test_nobody_can_count_on_what_a_conditional_stage_writes() -> None:
    """Catches a check that takes a stage for run which may be passed over."""

    @stage(writes=("train", "test", "objective"), when=lambda state: state.config.seed > 0)
    async def load_sometimes(state: SupervisedState) -> None: ...

    with pytest.raises(InputError, match=r"load_sometimes writes it: put .* after that, unconditionally"):
        SUPERVISED.replaced("load_dataset", load_sometimes).check({"service"})
    assert "load_sometimes?" in SUPERVISED.replaced("load_dataset", load_sometimes).describe()


@dataclass(kw_only=True)
class Counted(SupervisedState):
    count: int = field(init=False)


def test_a_state_of_ones_own_has_more_fields() -> None:
    @stage(reads=("train",), writes=("count",))
    async def count(state: Counted) -> None: ...

    config = SupervisedSettings()
    wider = SUPERVISED.with_state(Counted, lambda context: Counted(context=context, config=config))
    wider.inserted(count, after="load_dataset").check({"service"})


def test_stages_are_changed_by_name() -> None:
    @stage()
    async def say(state: SupervisedState) -> None: ...

    def names(workflow: Workflow[SupervisedState]) -> list[str]:
        return [each.name for each in workflow.stages()]

    before = names(SUPERVISED)
    assert names(SUPERVISED.inserted(say, before="evaluate"))[-4:] == ["say", "evaluate", "register_model", "cleanup"]
    assert names(SUPERVISED.replaced("load_dataset", say)) == ["say", *before[1:]]
    assert names(SUPERVISED.replaced("cleanup", say)) == [*before[:-1], "say"]
    slot: SlotStage[SupervisedState] = SlotStage(name="my_log", make=lambda _: print)
    assert names(SUPERVISED.replaced("loop.log_step_metrics", slot)).index("my_log") == before.index("log_step_metrics")
    assert names(SUPERVISED) == before


def test_a_change_that_cannot_be_is_refused() -> None:
    @stage()
    async def say(state: SupervisedState) -> None: ...

    slot: SlotStage[SupervisedState] = SlotStage(name="slot", make=lambda _: None)
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
