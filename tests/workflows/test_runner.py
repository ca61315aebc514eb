"""Stages run in order as spans; a failure names its stage; cleanup always runs."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from cookhouse.errors import InputError
from cookhouse.telemetry import Event, Record, Span, Telemetry
from cookhouse.training import FakeService, Interrupt
from cookhouse.workflows import SUPERVISED, LoopStages, RunState, SlotStage, StageError, Workflow, run_workflow, stage

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class State(RunState):
    failure: BaseException
    done: list[str] = field(default_factory=list)


@stage()
async def first(state: State) -> None:
    state.done.append("first")


@stage()
async def failing(state: State) -> None:
    raise state.failure


@stage()
async def cleanup(state: State) -> None:
    state.done.append(f"cleanup {state.status}")


def _unused(_: State) -> object:
    raise AssertionError("the loop was reached")


SLOT: SlotStage[State] = SlotStage(name="slot", make=_unused)
WORKFLOW = Workflow(
    name="broken",
    state_class=State,
    setup=(first, failing),
    loop=LoopStages(get_work=SLOT, forward_backward=SLOT, optim_step=SLOT, log=SLOT, checkpoint=SLOT, evaluate=SLOT),
    final=(first,),
    cleanup=cleanup,
)


class Keeping:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None: ...


async def fail(failure: BaseException) -> tuple[State, Keeping]:
    keeping = Keeping()
    state = State(telemetry=Telemetry([keeping]), interrupt=Interrupt(), service=FakeService().connect, failure=failure)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  each test looks at what it is
        await run_workflow(WORKFLOW, state)
    state.error = caught.value
    return state, keeping


async def test_callers_error_stays_what_it_is_and_names_its_stage() -> None:
    state, keeping = await fail(InputError("bad row"))
    assert isinstance(state.error, InputError)
    assert str(state.error) == "bad row"
    assert state.error.__notes__ == ["in stage failing"]
    assert state.done == ["first", "cleanup errored"]
    spans = [(record.name, record.error) for record in keeping.records if isinstance(record, Span)]
    assert spans == [("first", None), ("failing", "InputError"), ("cleanup", None)]
    starts = [record.text["stage"] for record in keeping.records if isinstance(record, Event)]
    assert starts == ["first", "failing", "cleanup"]


async def test_unforeseen_error_is_wrapped_with_the_name_of_its_stage() -> None:
    cause = KeyError("x")
    state, _ = await fail(cause)
    assert isinstance(state.error, StageError)
    assert str(state.error) == "stage failing failed: KeyError: 'x'"
    assert state.error.__cause__ is cause
    assert state.done == ["first", "cleanup errored"]


async def test_cancelled_run_is_cleaned_up_as_interrupted() -> None:
    state, _ = await fail(asyncio.CancelledError())
    assert isinstance(state.error, asyncio.CancelledError)
    assert state.done == ["first", "cleanup interrupted"]


async def test_broken_wiring_runs_nothing() -> None:
    @stage(reads=("folder",))
    async def early(state: State) -> None:
        state.done.append("early")

    state = State(
        telemetry=Telemetry(), interrupt=Interrupt(), service=FakeService().connect, failure=InputError("unused")
    )
    with pytest.raises(InputError, match="early reads folder"):
        await run_workflow(replace(WORKFLOW, setup=(first, early)), state)
    assert state.done == []


def test_supervised_stages_have_the_names_they_are_known_by() -> None:
    names = {each.name for each in (*SUPERVISED.setup, *SUPERVISED.loop, *SUPERVISED.final, SUPERVISED.cleanup)}
    assert {"load_dataset", "init_session", "init_tokenizer", "build_supervised_dataset", "save_final"} <= names
