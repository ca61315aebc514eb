"""Slots of the training loop that more than one workflow fills."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from cookhouse.errors import InputError
from cookhouse.settings import TrainingSettings
from cookhouse.telemetry import read_metrics
from cookhouse.training import (
    Assembler,
    Batches,
    BatchSource,
    BestWeights,
    CheckpointKind,
    Keep,
    PendingCheckpoint,
    ScheduledEvaluation,
    TrainingClient,
    submit_checkpoint,
)
from cookhouse.weights.checkpoints import Cursor
from cookhouse.workflows.base.counts import CountingLog
from cookhouse.workflows.base.example_log import ExampleLog, Keeper
from cookhouse.workflows.base.run import TrainingState
from cookhouse.workflows.stages.stage import SlotStage

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
P = TypeVar("P")
T = TypeVar("T", bound=TrainingState)

BATCHED = ("dataset", "total_steps", "steps_per_epoch", "cursor")
"""What `batch_source` reads."""


class BatchedState(Protocol[B_co]):
    """A state with a data set in batches."""

    @property
    def dataset(self) -> Batches[B_co]: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def cursor(self) -> Cursor: ...


def batch_source(state: BatchedState[B], assemble: Assembler[B, P], *, ahead: bool = True) -> BatchSource[B, P]:
    """The batches of the data set, from where the run stands on; `ahead` as in `BatchSource`."""
    return BatchSource(
        state.dataset,
        assemble,
        total_steps=state.total_steps,
        steps_per_epoch=state.steps_per_epoch,
        cursor=state.cursor,
        ahead=ahead,
    )


def objective_slot(name: str) -> SlotStage[T]:
    """The state's loss and its metrics."""
    return SlotStage(name=name, make=lambda state: state.objective, reads=("objective",))


def optim_step_slot() -> SlotStage[T]:
    """Adam with the run's schedule."""
    return SlotStage(name="optim_step", make=lambda state: state.adam, reads=("adam",))


def log_slot(name: str, *, event: str | None = None) -> SlotStage[T]:
    """Reports steps over batches; `event` is the algorithm's own name of a step."""

    def make(state: T) -> CountingLog:
        return CountingLog(state.telemetry, state.total_steps, state.steps_per_epoch, state.folder.metrics, event=event)

    return SlotStage(name=name, make=make, reads=("folder", "total_steps", "steps_per_epoch"))


def keep_slot(*others: Callable[[T], Keep]) -> SlotStage[T]:
    """Keeps some examples of each step, and what `others` keep of it; they are called in another thread."""

    def make(state: T) -> Keeper:
        examples = ExampleLog(
            state.folder.examples,
            num_shown=state.config.num_shown_examples,
            first_step=state.cursor.step,
            logprobs=state.objective.logprobs,
        )
        keeper = Keeper([examples, *(other(state) for other in others)])
        state.closing.push_async_callback(keeper.aclose)
        return keeper

    return SlotStage(name="keep_examples", make=make, reads=("config", "folder", "cursor", "objective"))


def checkpoint_slot() -> SlotStage[T]:
    """Periodic checkpoints, to continue from."""
    return SlotStage(
        name="checkpoint",
        make=lambda state: partial(_save_state, state.config),
        reads=("config",),
        is_optional=True,
    )


def evaluate_slot() -> SlotStage[T]:
    """Every evaluation of the state, each when it is due."""
    return SlotStage(name="evaluate", make=_evaluations, reads=("evaluations", "best"), is_optional=True)


def _evaluations(state: TrainingState) -> Sequence[ScheduledEvaluation]:
    if state.best is not None and not any(each.cadence.every > 0 for each in state.evaluations):
        raise InputError(
            "keep_best is set, and nothing held out is measured as the run goes on; set num_eval above 0 and hold some "
            "out, name evaluators, or leave keep_best out"
        )
    return state.evaluations


def best_weights(state: TrainingState) -> BestWeights | None:
    """Choice of the best weights, of a run that keeps them."""
    folder = state.folder
    if state.config.keep_best is None:
        return None
    return BestWeights(
        state.config,
        state.session.service,
        state.checkpoints,
        rows=read_metrics(folder.metrics),
        is_over=folder.resume is not None and folder.resume.final,
    )


def save_every(state: TrainingState) -> int:
    """Steps between periodic checkpoints."""
    return state.config.save_every


def _save_state(config: TrainingSettings, client: TrainingClient, cursor: Cursor) -> PendingCheckpoint:
    return submit_checkpoint(client, cursor, kind=CheckpointKind.STATE, ttl_seconds=config.ttl_seconds)
