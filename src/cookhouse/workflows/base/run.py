"""The run of every workflow that trains: its state, and the stages around the loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from cookhouse.chat import Renderer
from cookhouse.errors import InputError
from cookhouse.files import file_errors
from cookhouse.registry import Descent, ModelVersion
from cookhouse.runs import RunFolder, open_folder
from cookhouse.settings import TrainingSettings
from cookhouse.telemetry import JsonlSink, LogSink, TraceSink, Values, events, metrics_at
from cookhouse.training import (
    AdamSchedule,
    CheckpointKind,
    Objective,
    ScheduledEvaluation,
    SessionSpec,
    Waiting,
    drop_checkpoint,
    open_session,
    service_errors,
    submit_checkpoint,
)
from cookhouse.training.clients.metering import TokenMeter, metered
from cookhouse.training.clients.session import BROKEN_PATIENCE_SECONDS
from cookhouse.weights.checkpoints import Checkpoint, Cursor
from cookhouse.workflows.base.evaluation import NamedEvaluator, open_judges
from cookhouse.workflows.base.length import steps_notes
from cookhouse.workflows.base.spending import ExpectedTokens, expected_facts, is_metered, token_meter
from cookhouse.workflows.stages.body import LoopState
from cookhouse.workflows.stages.registering import is_registered, register_run
from cookhouse.workflows.stages.sinks import start_sinks
from cookhouse.workflows.stages.stage import Stage, stage


@dataclass(kw_only=True)
class TrainingState(LoopState):
    """State that the stages of a training run share."""

    config: TrainingSettings
    renderer: Renderer = field(init=False)
    objective: Objective[Any] = field(init=False)
    adam: AdamSchedule = field(init=False)
    steps_per_epoch: int = field(init=False)
    context_tokens: int | None = None
    """What the model takes at most, prompt and answer together; None if nobody here knows."""
    notes: list[str] = field(default_factory=list)
    """What a person should know about the data before it is trained on; said once."""
    evaluators: Sequence[NamedEvaluator] = field(init=False)
    """Those that settings and adapters name, made."""
    evaluations: list[ScheduledEvaluation] = field(default_factory=list)
    """What is measured, and how often; all of it also of the trained weights. A stage may add to it."""
    cursor: Cursor = field(init=False)
    final_checkpoint: Checkpoint = field(init=False)
    kept_checkpoint: Checkpoint = field(init=False)
    """The best one where the run keeps that, else the final one: what the run's name means, and what is registered."""
    eval_results: dict[str, Any] = field(default_factory=dict)
    """Metrics of the trained weights on what was held out; text where an evaluator gave some."""
    registered_model: ModelVersion | None = None
    """What the trained weights were registered as."""
    meter: TokenMeter | None = None
    """Counts the tokens of the session, where the run does that itself."""

    @property
    def expected_tokens(self) -> ExpectedTokens | None:
        """Tokens that the steps are to send and sample, from the stages that need no port; None: they are unknown."""
        return None


T = TypeVar("T", bound=TrainingState)


def set_steps(state: TrainingState, num_batches: int) -> None:
    """Decide how many steps there are, and with them the learning rate of each. An epoch has the `num_batches` of its
    data, or the first `n_batches` of the settings.

    Raises:
        InputError: the schedule does not fit the steps.
    """
    config = state.config
    state.steps_per_epoch = num_batches if config.n_batches is None else min(config.n_batches, num_batches)
    state.total_steps = state.steps_per_epoch * config.num_epochs
    state.notes += steps_notes(config, state.steps_per_epoch)
    if config.max_steps is not None:
        state.total_steps = min(state.total_steps, config.max_steps)
    state.adam = AdamSchedule(settings=config, total_steps=state.total_steps)
    state.adam.params(0)  # refuses before anything is opened
    state.notes += state.adam.notes


async def open_run(state: TrainingState) -> None:
    """Open the run directory and then the session: fresh, from weights, or where a checkpoint of the folder left off.

    Raises:
        InputError: the folder cannot be written, the service refuses the model, the checkpoint or the key, or the run
            has used all the tokens that it may.
        ServiceError: the service failed.
    """
    config, context = state.config, state.context
    meter = await asyncio.to_thread(token_meter, config, context)
    folder = await asyncio.to_thread(open_folder, context.folder, context.choice)
    state.closing.push_async_callback(_close_folder, state, folder)
    state.folder, state.checkpoints = folder, folder.checkpoints
    state.cursor = Cursor() if folder.resume is None else folder.resume.cursor
    with file_errors(folder.path):
        for sink in (JsonlSink(folder.metrics), TraceSink(folder.trace), LogSink(), folder.run_json):
            state.telemetry.add(sink)
    await start_sinks(context, folder.path)
    state.telemetry.event(
        events.RUN_START,
        step=state.cursor.step,
        metrics={"total_steps": state.total_steps},
        recipe=context.recipe,
        model=config.model_name,
        folder=str(folder.path),
    )
    for note in state.notes:
        state.telemetry.event(events.DATA_NOTE, text=note)
    resume_path = None if folder.resume is None else folder.resume.state_path
    spec = SessionSpec(settings=config, resume_path=resume_path, registry=context.adapters.registry)
    opening = open_session(metered(context.connect, meter, partial(is_metered, config)), spec)
    state.session = await Waiting(state.telemetry).wait(opening, "the service to be ready", step=state.cursor.step)
    state.closing.push_async_callback(_close_session, state)
    if is_metered(config, state.session.service):
        state.meter = meter
        for what, text in expected_facts(state.expected_tokens, config.prices).items():
            state.telemetry.event(events.DATA_NOTE, text=f"{what}: {text}")
    with service_errors("opening the judge of a benchmark"):
        await open_judges(state)


@stage(
    doing="saving the weights",
    reads=("session", "folder", "checkpoints", "outcome"),
    writes=("final_checkpoint", "kept_checkpoint"),
)
async def save_final(state: TrainingState) -> None:
    """Save the trained weights to continue from and to sample from; a resumed run that has them keeps them."""
    resumed = state.folder.resume
    if resumed is not None and resumed.final:
        state.final_checkpoint = state.kept_checkpoint = resumed
        return
    cursor = state.outcome.cursor
    pending = submit_checkpoint(state.session.client, cursor, kind=CheckpointKind.BOTH, is_final=True)
    with state.interrupt.deferred(), service_errors("saving the final checkpoint"):
        saving = Waiting(state.telemetry).wait(pending.finish(), "the final checkpoint", step=cursor.step)
        state.final_checkpoint = state.kept_checkpoint = await saving
    state.checkpoints.append(state.final_checkpoint)
    state.interrupt.stop_if_asked()  # what comes after it need not be waited for
    if (last := state.outcome.checkpoint) is not None and last.rolling:
        await drop_checkpoint(last, state.session.service, state.checkpoints)
    state.telemetry.event(events.TRAINING_CHECKPOINT, step=cursor.step, checkpoint=state.final_checkpoint.name)


@stage(
    doing="evaluating the trained weights",
    reads=("session", "evaluations", "outcome", "best", "final_checkpoint"),
    writes=("eval_results", "kept_checkpoint"),
)
async def evaluate(state: TrainingState) -> None:
    """Measure the trained weights on what was held out, by every evaluation there is."""
    step = state.outcome.cursor.step
    for scheduled in state.evaluations:
        doing = f"the final evaluation ({scheduled.name})"
        with service_errors(doing):
            answers = await scheduled.evaluation.begin(state.session.client, step)
            state.eval_results |= await Waiting(state.telemetry).wait(answers, doing, step=step)
    if state.eval_results:
        state.telemetry.metrics(step, state.eval_results)
    if state.best is not None:
        state.kept_checkpoint = await state.best.settle(state.final_checkpoint, state.eval_results)


def register_model(descent: Descent) -> Stage[T]:
    """The stage that registers the trained weights, of a run that was given a name to register under."""

    async def register(state: T) -> None:
        saved, service = state.kept_checkpoint, state.session.service
        metrics: Values = {**state.outcome.metrics, **state.eval_results}
        rows = state.folder.metrics
        if saved.step < state.outcome.cursor.step:
            metrics = metrics_at(rows, saved.step)
        state.registered_model = await register_run(state.context, saved, metrics, descent, service=service)

    return Stage(
        name="register_model",
        doing="registering the model",
        run=register,
        reads=("kept_checkpoint", "outcome", "eval_results", "session", "folder"),
        writes=("registered_model",),
        uses=("registry",),
        when=lambda state: is_registered(state.context),
    )


@stage(doing="ending the session")
async def cleanup(state: TrainingState) -> None:
    """End the session and stop logging; a folder in which nothing was trained yet goes, unless its logs may help."""
    await state.closing.aclose()


async def _close_session(state: TrainingState) -> None:
    if state.error is None:
        if usage := await state.session.usage():
            state.telemetry.event(events.RUN_USAGE, metrics=usage)
        await state.session.close(state.status)
    else:
        if state.meter is not None:
            state.telemetry.event(events.RUN_USAGE, metrics=state.meter.usage)
        await state.session.close(state.status, BROKEN_PATIENCE_SECONDS)


async def _close_folder(state: TrainingState, folder: RunFolder) -> None:
    state.telemetry.event(events.RUN_END, status=state.status)
    await asyncio.to_thread(folder.end, state.status, state.error)
    folder.close()
    if isinstance(state.error, InputError) or state.interrupt.is_forced:
        folder.discard()
