"""Runs a workflow: setup, loop, final, each stage a span, and cleanup whatever happened."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from cookhouse.errors import CookhouseError
from cookhouse.telemetry import Telemetry
from cookhouse.training import (
    Cadence,
    CheckpointFile,
    Connect,
    Interrupt,
    LoopOutcome,
    Session,
    SessionStatus,
    TrainingLoop,
)
from cookhouse.workflows.stage import Stage
from cookhouse.workflows.workflow import Workflow

logger = logging.getLogger(__name__)


class StageError(CookhouseError):
    """A stage failed in a way that nobody foresaw; the message names it, and the cause is chained."""


@dataclass(kw_only=True)
class RunState:
    """What every workflow's state has: what it was given, and what the loop is made from."""

    telemetry: Telemetry
    interrupt: Interrupt
    service: Connect
    status: SessionStatus = field(init=False, default="success")
    """How the run ends; set before cleanup."""
    error: BaseException | None = field(init=False, default=None)
    """What ended the run early, if something did."""
    session: Session = field(init=False)
    checkpoints: CheckpointFile = field(init=False)
    cadence: Cadence = field(init=False)
    total_steps: int = field(init=False)
    outcome: LoopOutcome = field(init=False)
    """Written by the loop."""


R = TypeVar("R", bound=RunState)


async def run_workflow(workflow: Workflow[R], state: R) -> None:
    """Run every stage in order; an interrupt in the loop skips the final ones.

    Raises:
        InputError, ServiceError: a stage raised it; a note on it names the stage.
        StageError: a stage raised something else.
    """
    workflow.check(ports={"service"})
    try:
        for stage in workflow.setup:
            await _execute(stage, state)
        with _named("loop"):
            state.outcome = await _loop(workflow, state).run()
        if state.outcome.is_interrupted:
            state.status = "interrupted"
            return
        for stage in workflow.final:
            await _execute(stage, state)
    except BaseException as error:
        state.status = "interrupted" if isinstance(error, asyncio.CancelledError) else "errored"
        state.error = error
        raise
    finally:
        await _execute(workflow.cleanup, state)


def _loop(workflow: Workflow[R], state: R) -> TrainingLoop:
    return TrainingLoop(
        client=state.session.client,
        slots=workflow.loop.fill(state),
        names=workflow.loop.names(),
        cadence=state.cadence,
        total_steps=state.total_steps,
        checkpoints=state.checkpoints,
        telemetry=state.telemetry,
        interrupt=state.interrupt,
    )


async def _execute(stage: Stage[R], state: R) -> None:
    state.telemetry.event("stage.start", stage=stage.name)
    with _named(stage.name), state.telemetry.span(stage.name):
        await stage.run(state)


@contextmanager
def _named(stage: str) -> Iterator[None]:
    """Puts the name of a stage on what escapes from it, unless a stage within has."""
    try:
        yield
    except CookhouseError as error:
        if not any(note.startswith("in stage ") for note in getattr(error, "__notes__", ())):
            error.add_note(f"in stage {stage}")
        raise
    except Exception as error:
        logger.exception("stage %s failed", stage)
        failed = StageError(f"stage {stage} failed: {type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            failed.add_note(note)
        raise failed from error
