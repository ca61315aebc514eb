"""The training loop as the body of a workflow: its slots, and stages that more than one workflow puts into them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from cookhouse.algorithms.base.counts import CountingLog
from cookhouse.algorithms.base.example_log import ExampleLog, Keeper
from cookhouse.algorithms.base.state import OpenedRun, Steps, TrainingState
from cookhouse.algorithms.base.time_left import Schedule
from cookhouse.algorithms.stages.body import Body
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.errors import InputError
from cookhouse.settings import TrainingSettings
from cookhouse.training import (
    AdamSchedule,
    Assembler,
    Batches,
    BatchSource,
    Cadence,
    CheckpointKind,
    LoopSlots,
    Objective,
    PendingCheckpoint,
    RollingSaves,
    ScheduledEvaluation,
    SlotNames,
    TrainingClient,
    TrainingLoop,
    submit_checkpoint,
)
from cookhouse.weights.checkpoints import Cursor

B = TypeVar("B")
P = TypeVar("P")


def batch_source(
    dataset: Batches[B], assemble: Assembler[B, P], steps: Steps, opened: OpenedRun, *, ahead: bool = True
) -> BatchSource[B, P]:
    """The batches of a data set, from where the run stands on; `ahead` as in `BatchSource`."""
    return BatchSource(
        dataset,
        assemble,
        total_steps=steps.total_steps,
        steps_per_epoch=steps.steps_per_epoch,
        cursor=opened.cursor,
        ahead=ahead,
    )


def objective_slot(name: str) -> Stage:
    """The run's loss and its metrics."""

    def make(objective: Objective[Any]) -> Objective[Any]:
        return objective

    return Stage(name=name, function=make)


def log_slot(name: str, *, event: str | None = None) -> Stage:
    """Reports steps over batches; `event` is the algorithm's own name of a step."""

    def make(
        context: RunContext,
        config: TrainingSettings,
        opened: OpenedRun,
        steps: Steps,
        evaluations: list[ScheduledEvaluation],
    ) -> CountingLog:
        schedule = Schedule(steps.total_steps, [each.cadence for each in evaluations], Cadence(every=config.save_every))
        return CountingLog(context.telemetry, schedule, steps.steps_per_epoch, opened.folder.metrics, event=event)

    return Stage(name=name, function=make)


def keeper(
    context: RunContext, config: TrainingSettings, opened: OpenedRun, objective: Objective[Any], *others: Any
) -> Keeper:
    """Saves some examples of each step, and calls the `others`; in another thread."""
    examples = ExampleLog(
        opened.folder.examples,
        num_shown=config.num_shown_examples,
        first_step=opened.cursor.step,
        logprobs=objective.logprobs,
    )
    found = Keeper([examples, *others])
    context.closing.push_async_callback(found.aclose)
    return found


@stage()
def keep_examples(
    context: RunContext, config: TrainingSettings, opened: OpenedRun, objective: Objective[Any]
) -> Keeper:
    """Saves some examples of each step."""
    return keeper(context, config, opened, objective)


@stage()
def optim_step(steps: Steps) -> AdamSchedule:
    """Adam with the run's schedule."""
    return steps.adam


@stage(is_optional=True)
def checkpoint(config: TrainingSettings) -> Callable[[TrainingClient, Cursor], PendingCheckpoint]:
    """Periodic checkpoints, to continue from."""
    return partial(submit_checkpoint, kind=CheckpointKind.STATE, ttl_seconds=config.ttl_seconds)


@stage(is_optional=True)
def evaluate(opened: OpenedRun, evaluations: list[ScheduledEvaluation]) -> Sequence[ScheduledEvaluation]:
    """Every evaluation of the run, each when it is due."""
    if opened.best is not None and not any(each.cadence.every > 0 for each in evaluations):
        raise InputError(
            "keep_best is set, and nothing held out is measured as the run goes on; set num_eval above 0 and hold some "
            "out, name evaluators, or leave keep_best out"
        )
    return evaluations


_OWN_NAMES = {each.name for each in fields(SlotNames)}


def training_loop(
    *,
    get_work: Stage,
    forward_backward: Stage,
    log: Stage,
    keep: Stage = keep_examples,
    look_back: Stage | None = None,
    publish: Stage | None = None,
) -> Body:
    """The training loop, with stages in the slots of `cookhouse.training.LoopSlots`; the others are the same in every
    run.
    """
    slots = {
        "get_work": get_work,
        "forward_backward": forward_backward,
        "optim_step": optim_step,
        "log": log,
        "keep": keep,
        "checkpoint": checkpoint,
        "evaluate": evaluate,
        "look_back": look_back,
        "publish": publish,
    }
    filled = {name: part for name, part in slots.items() if part is not None}

    async def run(parts: Sequence[Stage], state: TrainingState) -> bool:
        return await _run(dict(zip(filled, parts, strict=True)), state)

    return Body(
        title="loop",
        parts=tuple(filled.values()),
        run=run,
        reads=("config", "opened", "steps"),
        writes=("outcome",),
    )


async def _run(slots: dict[str, Stage], state: TrainingState) -> bool:
    context, config, opened = state.context, state.config, state.opened
    await asyncio.to_thread(opened.folder.begin)
    loop: TrainingLoop[Any] = TrainingLoop(
        client=opened.session.client,
        slots=LoopSlots(**{name: stage.make(state) for name, stage in slots.items()}),
        names=SlotNames(**{name: stage.name for name, stage in slots.items() if name in _OWN_NAMES}),
        save_every=config.save_every,
        rolling=RollingSaves(config, opened.session.service, opened.checkpoints),
        best=opened.best,
        total_steps=state.steps.total_steps,
        pause_at=config.pause_at_step,
        checkpoints=opened.checkpoints,
        telemetry=context.telemetry,
        interrupt=context.interrupt,
    )
    state.outcome = await loop.run()
    return not (state.outcome.is_interrupted or state.outcome.is_paused)
