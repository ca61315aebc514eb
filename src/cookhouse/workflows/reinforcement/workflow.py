"""The reinforcement workflow: environments in, an adapter that earns more in them out.

Groups of rollouts (do_rollout) become advantages (compute_advantages), these become datums (assemble_rl_batch), and the
policy loss trains on the datums (ppo_update, whichever loss that is).
"""

from collections.abc import Mapping

from cookhouse import algorithms as alg
from cookhouse.callables.arguments import checked
from cookhouse.data import DataSource
from cookhouse.registry import Descent
from cookhouse.settings import ReinforcementSettings
from cookhouse.telemetry import events
from cookhouse.training import ComputeLogprobs


@alg.stage(parts=("compute_advantages", "assemble_rl_batch"))
def do_rollout(
    context: alg.RunContext,
    config: ReinforcementSettings,
    steps: alg.Steps,
    reference: ComputeLogprobs | None,
    rollouts: alg.OpenedRollouts,
) -> alg.RolloutSource:
    """The groups of a run as work, with the advantages that their rewards give."""
    assemble = alg.rollout_assembler(context, config, reference, rollouts)
    return alg.rollout_source(config, steps, rollouts, assemble)


@checked
def reinforcement_workflow(
    config: ReinforcementSettings, environments: alg.Environments, *, data_files: Mapping[str, DataSource] | None = None
) -> alg.Workflow[alg.ReinforcementState]:
    """The stages of a reinforcement run in environments; `data_files` are those that these read, by what for."""
    return alg.training_workflow(
        name="reinforcement",
        state_class=alg.ReinforcementState,
        inputs={"config": config, "environments": environments},
        setup=(alg.init_tokenizer, alg.build_rl_groups, alg.init_evaluators, alg.init_rl_session),
        loop=alg.training_loop(
            get_work=do_rollout,
            forward_backward=alg.objective_slot("ppo_update"),
            log=alg.log_slot("log_rl_metrics", event=events.RL_STEP),
            keep=alg.keep_rl_examples,
            look_back=alg.post_kl,
            publish=alg.publish_weights,
        ),
        descent=Descent.RL_TRAINED_FROM,
        data_files=data_files,
    )
