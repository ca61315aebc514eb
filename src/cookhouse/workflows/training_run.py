"""What every workflow that trains shares: its plan's common part, its state, and the stages around the loop."""

import asyncio
import logging
from dataclasses import dataclass, field

from cookhouse.errors import InputError
from cookhouse.telemetry import JsonlSink, LogSink, TraceSink
from cookhouse.training import (
    AdamSchedule,
    Cadence,
    Checkpoint,
    CheckpointKind,
    Cursor,
    Evaluation,
    Patience,
    PendingCheckpoint,
    SessionSpec,
    TrainingClient,
    open_session,
    service_errors,
    submit_checkpoint,
)
from cookhouse.training.files import file_errors
from cookhouse.training.session import BROKEN_PATIENCE_SECONDS
from cookhouse.workflows.folder import FolderChoice, FolderSpec, RunFolder, open_folder
from cookhouse.workflows.report_page import write_report
from cookhouse.workflows.runner import RunState
from cookhouse.workflows.stage import stage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What every training run is told, all of it decided."""

    folder: FolderSpec
    model_name: str
    renderer_name: str
    force_renderer: bool
    num_epochs: int
    max_steps: int | None
    learning_rate: float
    lr_schedule: str
    warmup_steps: int
    weight_decay: float
    grad_clip_norm: float
    """0: the gradient is not clipped."""
    lora_rank: int
    train_mlp: bool
    train_attn: bool
    train_unembed: bool
    seed: int
    load_checkpoint_path: str | None
    cadence: Cadence
    ttl_seconds: int | None


@dataclass(kw_only=True)
class TrainingState(RunState):
    """What the stages of a training run hand to one another."""

    plan: TrainingPlan
    choice: FolderChoice
    adam: AdamSchedule = field(init=False)
    folder: RunFolder = field(init=False)
    context_tokens: int | None = field(init=False, default=None)
    """What the model takes at most, prompt and answer together; None if nobody here knows."""
    notes: list[str] = field(init=False, default_factory=list)
    """What a person should know about the data before it is trained on; said once."""
    evaluation: Evaluation | None = field(init=False)
    cursor: Cursor = field(init=False)
    final_checkpoint: Checkpoint = field(init=False)
    eval_results: dict[str, float] = field(init=False, default_factory=dict)
    """Metrics of the trained weights on what was held out."""


def set_steps(state: TrainingState, steps_per_epoch: int) -> None:
    """Decide how many steps there are, and with them the learning rate of each.

    Raises:
        InputError: the schedule does not fit the steps.
    """
    plan = state.plan
    state.total_steps = steps_per_epoch * plan.num_epochs
    if plan.max_steps is not None:
        state.total_steps = min(state.total_steps, plan.max_steps)
    state.cadence = plan.cadence
    state.adam = AdamSchedule(
        learning_rate=plan.learning_rate,
        schedule=plan.lr_schedule,
        total_steps=state.total_steps,
        warmup_steps=plan.warmup_steps,
        weight_decay=plan.weight_decay,
        grad_clip_norm=plan.grad_clip_norm,
    )
    state.adam.params(0)  # refuses before anything is opened


async def open_run(state: TrainingState) -> None:
    """Open the run folder and then the session: fresh, from weights, or where a checkpoint of the folder left off.

    Raises:
        InputError: the folder cannot be written, or the service refuses the model, the checkpoint or the key.
        ServiceError: the service failed.
    """
    plan = state.plan
    folder = await asyncio.to_thread(open_folder, plan.folder, state.choice)
    state.folder, state.checkpoints = folder, folder.checkpoints
    state.cursor = Cursor() if folder.resume is None else folder.resume.cursor
    with file_errors(folder.path):
        for sink in (JsonlSink(folder.metrics), TraceSink(folder.trace), LogSink()):
            state.telemetry.add(sink)
    state.telemetry.event(
        "run.start",
        step=state.cursor.step,
        metrics={"total_steps": state.total_steps},
        recipe=plan.folder.recipe,
        model=plan.model_name,
        folder=str(folder.path),
    )
    for note in state.notes:
        state.telemetry.event("data.note", text=note)
    spec = SessionSpec(
        model_name=plan.model_name,
        lora_rank=plan.lora_rank,
        train_mlp=plan.train_mlp,
        train_attn=plan.train_attn,
        train_unembed=plan.train_unembed,
        seed=plan.seed,
        resume_path=None if folder.resume is None else folder.resume.state_path,
        load_path=plan.load_checkpoint_path,
    )
    opening = open_session(state.service, spec)
    state.session = await Patience(state.telemetry).wait(opening, "the session to open", step=state.cursor.step)


def save_state(plan: TrainingPlan, client: TrainingClient, cursor: Cursor) -> PendingCheckpoint:
    """Request a periodic checkpoint, to continue from."""
    return submit_checkpoint(client, cursor, kind=CheckpointKind.STATE, ttl_seconds=plan.ttl_seconds)


@stage(reads=("session", "folder", "cursor", "checkpoints", "outcome", "total_steps"), writes=("final_checkpoint",))
async def save_final(state: TrainingState) -> None:
    """Save the trained weights to continue from and to sample from; a resumed run that has them keeps them."""
    resumed = state.folder.resume
    if resumed is not None and resumed.final:
        state.final_checkpoint = resumed
        return
    cursor = state.outcome.cursor
    pending = submit_checkpoint(state.session.client, cursor, kind=CheckpointKind.BOTH, is_final=True)
    with service_errors("saving the final checkpoint"):
        saving = Patience(state.telemetry).wait(pending.finish(), "the final checkpoint", step=cursor.step)
        state.final_checkpoint = await saving
    state.checkpoints.append(state.final_checkpoint)
    state.telemetry.event("training.checkpoint", step=cursor.step, checkpoint=state.final_checkpoint.name)


@stage(reads=("session", "evaluation", "outcome"), writes=("eval_results",))
async def evaluate(state: TrainingState) -> None:
    """Measure the trained weights on what was held out."""
    if state.evaluation is None:
        return
    step = state.outcome.cursor.step
    with service_errors("the final evaluation"):
        answers = await state.evaluation.begin(state.session.client, step)
        metrics = await Patience(state.telemetry).wait(answers, "the final evaluation", step=step)
    state.eval_results = dict(metrics)
    state.telemetry.metrics(step, metrics)


async def _write_report(folder: RunFolder) -> None:
    if not folder.metrics.exists():
        return
    try:
        await asyncio.to_thread(write_report, folder.path)
    except InputError as error:  # what ended the run matters more
        logger.warning("no report of the run: %s", error)


@stage()
async def cleanup(state: TrainingState) -> None:
    """End the session and stop logging; a folder in which nothing was trained yet goes, unless its logs may help."""
    if hasattr(state, "session"):
        if state.error is None:
            await state.session.close(state.status)
        else:
            await state.session.close(state.status, BROKEN_PATIENCE_SECONDS)
    if hasattr(state, "folder"):
        state.telemetry.event("run.end", status=state.status)
        await _write_report(state.folder)
        state.folder.close()
        if isinstance(state.error, InputError) or state.interrupt.is_forced:
            state.folder.discard()
