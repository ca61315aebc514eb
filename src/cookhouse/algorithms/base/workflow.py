"""The workflow of every run that trains, from what differs between algorithms."""

from collections.abc import Mapping
from typing import Any, TypeVar

from cookhouse.algorithms.base.run import cleanup, evaluate, register_model, save_final
from cookhouse.algorithms.base.state import TrainingState
from cookhouse.algorithms.stages.body import Body
from cookhouse.algorithms.stages.stage import Stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data import DataSource
from cookhouse.registry import Descent

T = TypeVar("T", bound=TrainingState)


def training_workflow(
    *,
    name: str,
    state_class: type[T],
    inputs: Mapping[str, Any],
    setup: tuple[Stage, ...],
    loop: Body,
    final: tuple[Stage, ...] = (),
    descent: Descent = Descent.FINE_TUNED_FROM,
    data_files: Mapping[str, DataSource] | None = None,
) -> Workflow[T]:
    """The stages of `setup`, the training loop, and the end of every run: the trained weights are saved, measured and
    registered. `setup` finds what can be wrong with the caller's input before it opens the folder and the session;
    stages of `final` run after the weights are registered; the rest as in `Workflow`.
    """
    return Workflow(
        name=name,
        state_class=state_class,
        inputs=inputs,
        setup=setup,
        body=loop,
        final=(save_final, evaluate, register_model(descent), *final),
        cleanup=cleanup,
        descent=descent,
        data_files=data_files or {},
    )
