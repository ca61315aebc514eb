"""Stages run in order as spans; a failure names its stage; cleanup always runs."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.workflows.kit import Keeping, make_context

from cookhouse.algorithms.stages.body import stages_in_order
from cookhouse.errors import InputError
from cookhouse.runs import RunResult, RunSummary
from cookhouse.telemetry import Event, Span
from cookhouse.workflows import RunContext, RunState, StageError, Workflow, run_workflow, stage

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class State(RunState):
    failure: BaseException | None = None
    is_second_wanted: bool = True
    done: list[str] = field(default_factory=list)
    count: int = field(init=False)

    def result(self, seconds: float) -> RunResult[Any]:
        summary = RunSummary(
            recipe="test",
            model_name="none",
            folder=self.context.folder.path,
            is_interrupted=self.context.status == "interrupted",
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
        return RunResult(state=self, metrics={}, artifacts={}, summary=summary)


@stage()
async def first(done: list[str]) -> None:
    done.append("first")


@stage()
async def failing(failure: BaseException | None) -> None:
    if failure is not None:
        raise failure


@stage(when=lambda is_second_wanted: is_second_wanted)
async def second(done: list[str]) -> None:
    done.append("second")


@stage()
async def last(done: list[str]) -> None:
    done.append("last")


@stage()
async def cleanup(context: RunContext, done: list[str]) -> None:
    done.append(f"cleanup {context.status}")


def workflow(**inputs: Any) -> Workflow[State]:
    return Workflow(
        name="test",
        state_class=State,
        inputs=inputs,
        setup=(first, failing),
        body=stages_in_order(second),
        final=(last,),
        cleanup=cleanup,
    )


async def fail(failure: BaseException) -> tuple[BaseException, list[str], Keeping]:
    """The error, the stages that ran, and what sinks heard."""
    keeping, done = Keeping(), list[str]()
    with pytest.raises(BaseException) as caught:  # noqa: PT011  each test looks at what it is
        await run_workflow(workflow(failure=failure, done=done), make_context(keeping))
    return caught.value, done, keeping


async def test_stages_run_in_order_and_cleanup_last() -> None:
    result = await run_workflow(workflow(), make_context())
    assert result.state.done == ["first", "second", "last", "cleanup success"]
    assert result.summary.seconds > 0


async def test_a_stage_whose_condition_says_no_is_passed_over() -> None:
    keeping = Keeping()
    result = await run_workflow(workflow(is_second_wanted=False), make_context(keeping))
    assert result.state.done == ["first", "last", "cleanup success"]
    assert "second" not in [record.name for record in keeping.records if isinstance(record, Span)]


async def test_a_stage_is_told_in_words_and_recorded_by_its_name() -> None:
    """Catches a user's own stage that a terminal tells by the name of its function, and a span that goes by words."""

    @stage(doing="counting the rows")
    async def count_rows(done: list[str]) -> None:
        done.append("counted")

    keeping = Keeping()
    whole = workflow().inserted(count_rows, after="first")
    own = replace(count_rows, name="my_own_part", doing="")
    await run_workflow(whole.replaced("second", own), make_context(keeping))
    told = {each.text["stage"]: each.text["doing"] for each in keeping.records if isinstance(each, Event)}
    assert told["count_rows"] == "counting the rows"
    assert told["my_own_part"] == "my own part"
    assert {"count_rows", "my_own_part"} <= {each.name for each in keeping.records if isinstance(each, Span)}


async def test_an_interrupt_ends_a_body_of_stages_between_two() -> None:
    @stage()
    async def interrupting(context: RunContext) -> None:
        with context.interrupt.deferred():
            context.interrupt.request()

    result = await run_workflow(replace(workflow(), body=stages_in_order(interrupting, second)), make_context())
    assert result.summary.is_interrupted
    assert result.state.done == ["first", "cleanup interrupted"]


async def test_callers_error_stays_what_it_is_and_names_its_stage() -> None:
    error, done, keeping = await fail(InputError("bad row"))
    assert isinstance(error, InputError)
    assert str(error) == "bad row"
    assert error.__notes__ == ["in stage failing"]
    assert done == ["first", "cleanup errored"]
    spans = [(record.name, record.error) for record in keeping.records if isinstance(record, Span)]
    assert spans == [("first", None), ("failing", "InputError"), ("cleanup", None)]
    starts = [record.text["stage"] for record in keeping.records if isinstance(record, Event)]
    assert starts == ["first", "failing", "cleanup"]


async def test_unforeseen_error_is_wrapped_with_the_name_of_its_stage() -> None:
    cause = KeyError("x")
    error, done, _ = await fail(cause)
    assert isinstance(error, StageError)
    assert str(error) == "stage failing failed: KeyError: 'x'"
    assert error.__cause__ is cause
    assert done == ["first", "cleanup errored"]


async def test_cancelled_run_is_cleaned_up_as_interrupted() -> None:
    error, done, _ = await fail(asyncio.CancelledError())
    assert isinstance(error, asyncio.CancelledError)
    assert done == ["first", "cleanup interrupted"]


async def test_broken_wiring_runs_nothing() -> None:
    @stage()
    async def early(done: list[str], count: int) -> None:
        done.append(f"early {count}")

    done: list[str] = []
    with pytest.raises(InputError, match="early takes count, which is not there by then"):
        await run_workflow(workflow(done=done).inserted(early, after="first"), make_context())
    assert done == []


async def test_a_result_becomes_the_field_of_its_type() -> None:
    """Catches parts of a tuple that change places, and a stage after it that sees what was there before."""

    @stage()
    async def count(done: list[str]) -> tuple[int, list[str]]:
        return len(done), [*done, "count"]

    @stage()
    async def tell(count: int, done: list[str]) -> None:
        done.append(f"{count} before")

    whole = workflow().inserted(count, after="first").inserted(tell, after="failing")
    result = await run_workflow(whole, make_context())
    assert result.state.done == ["first", "count", "1 before", "second", "last", "cleanup success"]
    assert result.state.count == 1
