"""Wiring is checked before anything runs, and described from the objects that run."""

from dataclasses import replace

import pytest

from cookhouse.errors import InputError
from cookhouse.workflows import SUPERVISED, SupervisedState, stage


def test_the_supervised_workflow_is_wired() -> None:
    SUPERVISED.check({"service"})


def test_every_setup_stage_is_needed_by_a_later_one() -> None:
    # Catches declarations that say nothing: without any one of them, something must be missing.
    for left_out in SUPERVISED.setup:
        shorter = replace(SUPERVISED, setup=tuple(each for each in SUPERVISED.setup if each is not left_out))
        with pytest.raises(InputError, match="which is not there by then"):
            shorter.check({"service"})


def test_missing_port_is_named() -> None:
    with pytest.raises(InputError, match="init_session needs the port service"):
        SUPERVISED.check(set())


def test_unknown_field_is_named() -> None:
    @stage(writes=("datasat",))
    async def misspelled(state: SupervisedState) -> None: ...

    with pytest.raises(InputError, match="misspelled writes datasat"):
        replace(SUPERVISED, setup=(misspelled,)).check({"service"})


def test_describe_prints_the_stages_by_name() -> None:
    names = [line.split()[-1] for line in SUPERVISED.describe().splitlines()]
    assert names == [
        "supervised",
        "setup", "load_dataset", "init_tokenizer", "build_supervised_dataset", "init_session",
        "loop", "get_batch", "forward_backward", "optim_step", "log_step_metrics", "checkpoint?", "evaluate?",
        "final", "save_final", "evaluate", "cleanup",
    ]  # fmt: skip
