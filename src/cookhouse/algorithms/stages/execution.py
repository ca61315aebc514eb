"""One stage runs: as a span, and with its name on whatever escapes from it."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cookhouse.algorithms.stages.stage import Stage
from cookhouse.algorithms.stages.state import RunState
from cookhouse.errors import CookhouseError
from cookhouse.telemetry import events

logger = logging.getLogger(__name__)


class StageError(CookhouseError):
    """A stage failed in a way that nobody foresaw; the message names it, and the cause is chained."""


async def execute(stage: Stage, state: RunState) -> None:
    """Run a stage, unless its condition says no.

    Raises:
        InputError, ServiceError: the stage raised it; a note on it names the stage.
        StageError: the stage raised something else.
    """
    with named(stage.name):
        if not stage.applies(state):
            return
        telemetry = state.context.telemetry
        telemetry.event(events.STAGE_START, stage=stage.name, doing=stage.progress)
        with telemetry.span(stage.name):
            await stage.run(state)


async def execute_all(stages: Iterable[Stage], state: RunState) -> bool:
    """Run stages in order; whether all were, before the run was to end. Raises as `execute`."""
    for stage in stages:
        is_over = False
        if not state.context.interrupt.is_requested:
            with state.context.interrupt.left_at_end():
                await execute(stage, state)
                is_over = True
        if not is_over:
            return False
    return True


@contextmanager
def named(stage: str) -> Iterator[None]:
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
