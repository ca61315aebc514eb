"""Stages around the training loop of every run, and how its length is planned and its session opened."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cookhouse.algorithms.base.evaluation import NamedEvaluator, open_judges, scheduled_evaluators
from cookhouse.algorithms.base.facts import steps_notes
from cookhouse.algorithms.base.spending import ExpectedTokens, expected_facts, is_metered, token_meter
from cookhouse.algorithms.base.state import OpenedRun, SavedWeights, Steps
from cookhouse.algorithms.stages.headline import watch_headline
from cookhouse.algorithms.stages.registering import is_registered, register_run
from cookhouse.algorithms.stages.sinks import start_sinks
from cookhouse.algorithms.stages.stage import Stage, stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.diagnosis import FindingsWatch, RunFacts
from cookhouse.errors import InputError
from cookhouse.files import file_errors
from cookhouse.registry import Descent, ModelVersion
from cookhouse.runs import RunFolder, open_folder
from cookhouse.runs.findings import read_checkpoints
from cookhouse.settings import TrainingSettings
from cookhouse.telemetry import JsonlSink, LogSink, TraceSink, events, metrics_at, read_metrics
from cookhouse.training import (
    AdamSchedule,
    BestWeights,
    Cadence,
    CheckpointKind,
    Evaluation,
    LoopOutcome,
    ScheduledEvaluation,
    SessionSpec,
    TrainingSession,
    Waiting,
    drop_checkpoint,
    open_session,
    service_errors,
    submit_checkpoint,
)
from cookhouse.training.clients.metering import TokenMeter, metered
from cookhouse.training.clients.session import BROKEN_PATIENCE_SECONDS
from cookhouse.weights.checkpoints import Cursor


def planned_steps(
    context: RunContext,
    config: TrainingSettings,
    num_batches: int,
    expected: Callable[[int, int], ExpectedTokens] | None = None,
) -> Steps:
    """Length of a run whose data make `num_batches` batches in an epoch, of which `n_batches` of the settings takes the
    first; and the learning rate of each step. `expected` gives the tokens of so many steps, and so many per epoch.

    Raises:
        InputError: the schedule does not fit the steps.
    """
    per_epoch = num_batches if config.n_batches is None else min(config.n_batches, num_batches)
    total = per_epoch * config.num_epochs
    context.notes += steps_notes(config, per_epoch)
    if config.max_steps is not None:
        total = min(total, config.max_steps)
    adam = AdamSchedule(settings=config, total_steps=total)
    adam.params(0)  # refuses before anything is opened
    context.notes += adam.notes
    tokens = None if expected is None else expected(total, per_epoch)
    return Steps(total_steps=total, steps_per_epoch=per_epoch, adam=adam, expected_tokens=tokens)


async def open_run(
    context: RunContext, config: TrainingSettings, steps: Steps, evaluators: Sequence[NamedEvaluator]
) -> OpenedRun:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint of the folder left off.

    Raises:
        InputError: the folder cannot be written, the service refuses the model, the checkpoint or the key, or the run
            has used all the tokens that it may.
        ServiceError: the service failed.
    """
    telemetry = context.telemetry
    meter = await asyncio.to_thread(token_meter, config, context)
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    context.closing.push_async_callback(_close_folder, context, folder)
    cursor = Cursor() if folder.resume is None else folder.resume.cursor
    with file_errors(folder.path):
        for sink in (JsonlSink(folder.metrics), TraceSink(folder.trace), LogSink(), folder.run_json):
            telemetry.add(sink)
    await start_sinks(context, folder.path)
    watch_findings(context, folder, steps.total_steps)
    telemetry.event(
        events.RUN_START,
        step=cursor.step,
        metrics={"total_steps": steps.total_steps},
        recipe=context.recipe,
        model=config.model_name,
        folder=str(folder.path),
    )
    telemetry.notes(context.notes)
    resume_path = None if folder.resume is None else folder.resume.state_path
    spec = SessionSpec(settings=config, resume_path=resume_path, registry=context.registry)
    opening = open_session(metered(context.connect, meter, partial(is_metered, config)), spec)
    session = await Waiting(telemetry).wait(opening, "the service to be ready", step=cursor.step)
    counted = meter if is_metered(config, session.service) else None
    context.closing.push_async_callback(_close_session, context, session, counted)
    if counted is not None:
        expected = expected_facts(steps.expected_tokens, config.prices)
        telemetry.notes(f"{what}: {text}" for what, text in expected.items())
    with service_errors("opening the judge of a benchmark"):
        await open_judges(context, config, evaluators, session.service)
    best = None if config.keep_best is None else _best_weights(config, folder, session)
    return OpenedRun(folder=folder, cursor=cursor, session=session, best=best, meter=counted)


def watch_findings(context: RunContext, folder: RunFolder, total_steps: int | None = None) -> None:
    """Report findings in the metrics of a run as they become true; None: how many steps it takes is unknown."""
    facts = RunFacts(
        settings=context.folder.config, total_steps=total_steps, checkpoints=lambda: read_checkpoints(folder.path)
    )
    context.telemetry.add(FindingsWatch(context.telemetry, facts, read_metrics(folder.metrics)))
    watch_headline(context, folder)


def _best_weights(config: TrainingSettings, folder: RunFolder, session: TrainingSession) -> BestWeights:
    is_over = folder.resume is not None and folder.resume.final
    rows = read_metrics(folder.metrics)
    return BestWeights(config, session.service, folder.checkpoints, rows=rows, is_over=is_over)


def refuse_longer(config: TrainingSettings, opened: OpenedRun, longest: int, what: str, way_out: str = "") -> None:
    """Raises `InputError` for an example longer than the service takes, which is known once the session is open."""
    limit = opened.session.context_tokens
    if limit is not None and longest > limit:
        raise InputError(
            f"{config.model_name} takes {limit:,} tokens at this service, and the longest {what} has {longest:,}; set "
            f"max_length={limit}{way_out}"
        )


def scheduled(
    context: RunContext,
    config: TrainingSettings,
    opened: OpenedRun,
    evaluators: Sequence[NamedEvaluator],
    held_out: Evaluation | None = None,
) -> list[ScheduledEvaluation]:
    """Evaluations of a run: that of what was held out, where there is some, then those of evaluators."""
    cadence = Cadence(every=config.eval_every, at_start=config.eval_at_start)
    own = [] if held_out is None else [ScheduledEvaluation(name="held out", evaluation=held_out, cadence=cadence)]
    return own + scheduled_evaluators(evaluators, context.telemetry, opened.folder.evaluations)


@stage(doing="saving the weights")
async def save_final(context: RunContext, opened: OpenedRun, outcome: LoopOutcome) -> SavedWeights:
    """Save the trained weights to continue from and to sample from; a resumed run that has them does not save again."""
    resumed, session = opened.folder.resume, opened.session
    if resumed is not None and resumed.final:
        return SavedWeights(final=resumed, chosen=resumed)
    cursor = outcome.cursor
    pending = submit_checkpoint(session.client, cursor, kind=CheckpointKind.BOTH, is_final=True)
    with context.interrupt.deferred(), service_errors("saving the final checkpoint"):
        final = await Waiting(context.telemetry).wait(pending.finish(), "the final checkpoint", step=cursor.step)
    opened.checkpoints.append(final)
    context.interrupt.stop_if_asked()  # what comes after it need not be waited for
    if (last := outcome.checkpoint) is not None and last.rolling:
        await drop_checkpoint(last, session.service, opened.checkpoints)
    context.telemetry.event(events.TRAINING_CHECKPOINT, step=cursor.step, checkpoint=final.name)
    return SavedWeights(final=final, chosen=final)


@stage(doing="evaluating the trained weights")
async def evaluate(
    context: RunContext,
    opened: OpenedRun,
    evaluations: list[ScheduledEvaluation],
    outcome: LoopOutcome,
    saved: SavedWeights,
    eval_results: dict[str, Any],
) -> SavedWeights:
    """Measure the trained weights on what was held out, by every evaluation there is."""
    step = outcome.cursor.step
    for scheduled in evaluations:
        doing = f"the final evaluation ({scheduled.name})"
        with service_errors(doing):
            answers = await scheduled.evaluation.begin(opened.session.client, step)
            eval_results |= await Waiting(context.telemetry).wait(answers, doing, step=step)
    if eval_results:
        context.telemetry.metrics(step, eval_results)
    if opened.best is None:
        return saved
    return SavedWeights(final=saved.final, chosen=await opened.best.settle(saved.final, eval_results))


def register_model(descent: Descent) -> Stage:
    """The stage that registers the trained weights, of a run that was given a name to register under."""

    async def register(
        context: RunContext, opened: OpenedRun, outcome: LoopOutcome, saved: SavedWeights, eval_results: dict[str, Any]
    ) -> ModelVersion | None:
        chosen = saved.chosen
        metrics = context.telemetry.chosen({**outcome.metrics, **eval_results})
        if chosen.step < outcome.cursor.step:
            metrics = metrics_at(opened.folder.metrics, chosen.step)
        return await register_run(context, chosen, metrics, descent, service=opened.session.service)

    return Stage(
        name="register_model",
        function=register,
        doing="registering the model",
        uses=("registry",),
        when=is_registered,
    )


@stage(doing="ending the session")
async def cleanup(context: RunContext) -> None:
    """End the session and stop logging; a folder in which nothing was trained yet goes, unless its logs may help."""
    await context.closing.aclose()


async def _close_session(context: RunContext, session: TrainingSession, meter: TokenMeter | None) -> None:
    if context.error is None:
        if usage := await session.usage():
            context.telemetry.event(events.RUN_USAGE, metrics=usage)
        await session.close(context.status)
    else:
        if meter is not None:
            context.telemetry.event(events.RUN_USAGE, metrics=meter.usage)
        await session.close(context.status, BROKEN_PATIENCE_SECONDS)


async def _close_folder(context: RunContext, folder: RunFolder) -> None:
    context.telemetry.event(events.RUN_END, status=context.status)
    await asyncio.to_thread(folder.end, context.status, context.error)
    folder.close()
    if isinstance(context.error, InputError) or context.interrupt.is_forced:
        folder.discard()
