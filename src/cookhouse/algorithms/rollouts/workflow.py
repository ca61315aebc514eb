"""The workflow of a run over rollouts, whatever it learns from them."""

from collections.abc import Mapping
from typing import TypeVar

from cookhouse.algorithms.base.evaluation import init_evaluators
from cookhouse.algorithms.base.loop import log_slot, objective_slot, training_loop
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.rollouts.problems import Environments, build_env_group
from cookhouse.algorithms.rollouts.rollouts import init_rollouts, publish_weights
from cookhouse.algorithms.rollouts.state import RolloutState
from cookhouse.algorithms.stages.stage import Stage
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.settings import RolloutTrainingSettings

R = TypeVar("R", bound=RolloutState)


def rollout_workflow(
    name: str,
    state_class: type[R],
    config: RolloutTrainingSettings,
    environments: Environments,
    *,
    get_work: Stage,
    setup: tuple[Stage, ...] = (),
    descent: Descent = Descent.RL_TRAINED_FROM,
    data_files: Mapping[str, DataSource] | None = None,
) -> Workflow[R]:
    """Problems of environments, a source of work made of rollouts of them (`get_work`), the run's objective, and new
    weights to sample from after each step. Stages of `setup` run once the session is open; one of them returns the
    objective.
    """
    return training_workflow(
        name=name,
        state_class=state_class,
        inputs={"config": config, "environments": environments},
        setup=(init_tokenizer, build_env_group, init_evaluators, init_rollouts, *setup),
        loop=training_loop(
            get_work=get_work,
            forward_backward=objective_slot("forward_backward"),
            log=log_slot("log_step_metrics"),
            publish=publish_weights,
        ),
        descent=descent,
        data_files=data_files,
    )
