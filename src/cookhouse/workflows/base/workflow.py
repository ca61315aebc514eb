"""The workflow of every run that trains, from what differs between algorithms."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.runs import Preview, RunResult
from cookhouse.workflows.base.run import TrainingState, cleanup, evaluate, register_model, save_final
from cookhouse.workflows.base.slots import (
    best_weights,
    checkpoint_slot,
    evaluate_slot,
    keep_slot,
    optim_step_slot,
    save_every,
)
from cookhouse.workflows.base.spending import expected_facts
from cookhouse.workflows.stages.body import Loop
from cookhouse.workflows.stages.stage import SlotStage, Stage
from cookhouse.workflows.stages.state import RunContext
from cookhouse.workflows.stages.workflow import Workflow

T = TypeVar("T", bound=TrainingState)


def _no_previews(state: TrainingState) -> Sequence[Preview]:
    del state
    return ()


def training_workflow(
    *,
    name: str,
    state_class: type[T],
    start: Callable[[RunContext], T],
    setup: tuple[Stage[T], ...],
    get_work: SlotStage[T],
    forward_backward: SlotStage[T],
    log: SlotStage[T],
    keep: SlotStage[T] | None = None,
    look_back: SlotStage[T] | None = None,
    publish: SlotStage[T] | None = None,
    final: tuple[Stage[T], ...] = (),
    descent: Descent = Descent.FINE_TUNED_FROM,
    result: Callable[[T, float], RunResult[T]],
    facts: Callable[[T], Mapping[str, str]],
    previews: Callable[[T], Sequence[Preview]] = _no_previews,
    data_files: Mapping[str, DataSource] | None = None,
) -> Workflow[T]:
    """The stages of `setup`, the training loop, and what ends every run: the trained weights are saved, measured and
    registered. `setup` finds what can be wrong with the caller's input before it opens the folder and the session;
    `keep` is `keep_slot()` by default; stages of `final` run after the weights are registered; the rest as in
    `Workflow` and `Loop`.
    """
    return Workflow(
        name=name,
        state_class=state_class,
        start=start,
        setup=setup,
        body=Loop(
            get_work=get_work,
            forward_backward=forward_backward,
            optim_step=optim_step_slot(),
            log=log,
            keep=keep or keep_slot(),
            checkpoint=checkpoint_slot(),
            evaluate=evaluate_slot(),
            look_back=look_back,
            publish=publish,
            save_every=save_every,
            best=best_weights,
            reads=(*Loop.reads, "folder"),
        ),
        final=(save_final, evaluate, register_model(descent), *final),
        cleanup=cleanup,
        result=result,
        facts=lambda state: {**facts(state), **expected_facts(state.expected_tokens, state.config.prices)},
        notes=lambda state: state.notes,
        previews=previews,
        descent=descent,
        data_files=data_files or {},
    )
