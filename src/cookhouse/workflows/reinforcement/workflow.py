"""The reinforcement workflow: environments in, an adapter that earns more in them out.

Groups of rollouts (do_rollout) become advantages (compute_advantages), these become datums (assemble_rl_batch), and the
policy loss trains on the datums (ppo_update, whichever loss that is).
"""

from collections.abc import Mapping

from cookhouse.algorithms.base.evaluation import init_evaluators
from cookhouse.algorithms.base.loop import objective_slot, training_loop
from cookhouse.algorithms.base.state import Steps
from cookhouse.algorithms.base.tokenizer import init_tokenizer
from cookhouse.algorithms.base.workflow import training_workflow
from cookhouse.algorithms.rollouts.problems import Environments
from cookhouse.algorithms.rollouts.reinforcement import (
    ReinforcementState,
    build_rl_groups,
    init_rl_session,
    keep_rl_examples,
    policy_log_slot,
    post_kl,
    rollout_assembler,
    rollout_source,
)
from cookhouse.algorithms.rollouts.rollouts import OpenedRollouts, publish_weights
from cookhouse.algorithms.rollouts.source import RolloutSource
from cookhouse.algorithms.stages.stage import stage
from cookhouse.algorithms.stages.state import RunContext
from cookhouse.algorithms.stages.workflow import Workflow
from cookhouse.callables.arguments import checked
from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import events
from cookhouse.training import ComputeLogprobs


@stage(parts=("compute_advantages", "assemble_rl_batch"))
def do_rollout(
    context: RunContext,
    config: ReinforcementSettings,
    steps: Steps,
    reference: ComputeLogprobs | None,
    rollouts: OpenedRollouts,
) -> RolloutSource:
    """The groups of a run as work, with the advantages that their rewards give."""
    assemble = rollout_assembler(context, config, reference, rollouts)
    return rollout_source(config, steps, rollouts, assemble)


@checked
def reinforcement_workflow(
    config: ReinforcementSettings, environments: Environments, *, data_files: Mapping[str, DataSource] | None = None
) -> Workflow[ReinforcementState]:
    """The stages of a reinforcement run in environments; `data_files` are those that these read, by what for."""
    return training_workflow(
        name="reinforcement",
        state_class=ReinforcementState,
        inputs={"config": config, "environments": environments},
        setup=(init_tokenizer, build_rl_groups, init_evaluators, init_rl_session),
        loop=training_loop(
            get_work=do_rollout,
            forward_backward=objective_slot("ppo_update"),
            log=policy_log_slot("log_rl_metrics", event=events.RL_STEP),
            keep=keep_rl_examples,
            look_back=post_kl,
            publish=publish_weights,
        ),
        descent=Descent.RL_TRAINED_FROM,
        data_files=data_files,
    )
