"""Stages run in order as spans; a failure names its stage; cleanup always runs."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from tests.workflows.kit import Keeping, make_context

from cookhouse.errors import InputError
from cookhouse.runs import RunResult, RunSummary
from cookhouse.telemetry import Event, Span
from cookhouse.workflows import RunState, StageError, Stages, Workflow, run_workflow, stage

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class State(RunState):
    failure: BaseException | None = None
    is_second_wanted: bool = True
    done: list[str] = field(default_factory=list)


@stage()
async def first(state: State) -> None:
    state.done.append("first")


@stage()
async def failing(state: State) -> None:
    if state.failure is not None:
        raise state.failure


@stage(when=lambda state: state.is_second_wanted)
async def second(state: State) -> None:
    state.done.append("second")


@stage()
async def last(state: State) -> None:
    state.done.append("last")


@stage()
async def cleanup(state: State) -> None:
    state.done.append(f"cleanup {state.status}")


def _result(state: State, seconds: float) -> RunResult[State]:
    summary = RunSummary(
        recipe="test",
        model_name="none",
        folder=state.context.folder.path,
        is_interrupted=state.status == "interrupted",
        num_steps=0,
        total_steps=0,
        seconds=seconds,
        figures=(),
        samples=(),
        report=None,
        state_path=None,
        sampler_path=None,
        next_command="",
    )
    return RunResult(state=state, metrics={}, artifacts={}, summary=summary)


def workflow(state: State) -> Workflow[State]:
    return Workflow(
        name="test",
        state_class=State,
        start=lambda context: replace(state, context=context),
        setup=(first, failing),
        body=Stages(parts=(second,)),
        final=(last,),
        cleanup=cleanup,
        result=_result,
    )


async def fail(failure: BaseException) -> tuple[BaseException, State, Keeping]:
    keeping = Keeping()
    context = make_context(keeping)
    state = State(context=context, failure=failure)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  each test looks at what it is
        await run_workflow(workflow(state), context)
    return caught.value, state, keeping


async def test_stages_run_in_order_and_cleanup_last() -> None:
    context = make_context()
    result = await run_workflow(workflow(State(context=context)), context)
    assert result.state.done == ["first", "second", "last", "cleanup success"]
    assert result.summary.seconds > 0


async def test_a_stage_whose_condition_says_no_is_passed_over() -> None:
    context, keeping = make_context(), Keeping()
    context.telemetry.add(keeping)
    result = await run_workflow(workflow(State(context=context, is_second_wanted=False)), context)
    assert result.state.done == ["first", "last", "cleanup success"]
    assert "second" not in [record.name for record in keeping.records if isinstance(record, Span)]


async def test_a_stage_is_told_in_words_and_recorded_by_its_name() -> None:
    """Catches a user's own stage that a terminal tells by the name of its function, and a span that goes by words."""

    @stage(doing="counting the rows")
    async def count_rows(state: State) -> None:
        state.done.append("counted")

    context, keeping = make_context(), Keeping()
    context.telemetry.add(keeping)
    whole = workflow(State(context=context)).inserted(count_rows, after="first")
    await run_workflow(whole.replaced("second", replace(count_rows, name="my_own_part", doing="")), context)
    told = {each.text["stage"]: each.text["doing"] for each in keeping.records if isinstance(each, Event)}
    assert told["count_rows"] == "counting the rows"
    assert told["my_own_part"] == "my own part"
    assert {"count_rows", "my_own_part"} <= {each.name for each in keeping.records if isinstance(each, Span)}


async def test_an_interrupt_ends_a_body_of_stages_between_two() -> None:
    @stage()
    async def interrupting(state: State) -> None:
        with state.interrupt.deferred():
            state.interrupt.request()

    context = make_context()
    whole = workflow(State(context=context))
    result = await run_workflow(replace(whole, body=Stages(parts=(interrupting, second))), context)
    assert result.summary.is_interrupted
    assert result.state.done == ["first", "cleanup interrupted"]


async def test_callers_error_stays_what_it_is_and_names_its_stage() -> None:
    error, state, keeping = await fail(InputError("bad row"))
    assert isinstance(error, InputError)
    assert str(error) == "bad row"
    assert error.__notes__ == ["in stage failing"]
    assert state.done == ["first", "cleanup errored"]
    spans = [(record.name, record.error) for record in keeping.records if isinstance(record, Span)]
    assert spans == [("first", None), ("failing", "InputError"), ("cleanup", None)]
    starts = [record.text["stage"] for record in keeping.records if isinstance(record, Event)]
    assert starts == ["first", "failing", "cleanup"]


async def test_unforeseen_error_is_wrapped_with_the_name_of_its_stage() -> None:
    cause = KeyError("x")
    error, state, _ = await fail(cause)
    assert isinstance(error, StageError)
    assert str(error) == "stage failing failed: KeyError: 'x'"
    assert error.__cause__ is cause
    assert state.done == ["first", "cleanup errored"]


async def test_cancelled_run_is_cleaned_up_as_interrupted() -> None:
    error, state, _ = await fail(asyncio.CancelledError())
    assert isinstance(error, asyncio.CancelledError)
    assert state.done == ["first", "cleanup interrupted"]


async def test_broken_wiring_runs_nothing() -> None:
    @stage(reads=("folder",))
    async def early(state: State) -> None:
        state.done.append("early")

    context = make_context()
    state = State(context=context)
    with pytest.raises(InputError, match="early reads folder"):
        await run_workflow(workflow(state).inserted(early, after="first"), context)
    assert state.done == []
