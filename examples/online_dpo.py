"""An algorithm of one's own: online DPO (https://arxiv.org/abs/2402.04792).

    cookhouse run examples/online_dpo.py:RECIPE max_steps=20

Each step the model answers every problem several times. The answer with the most reward and the one with the least make
a pair, and the pairs are trained on by DPO, or another loss over pairs, against a reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import chz

from cookhouse import Recipe, Workflow, stage
from cookhouse.recipes.reinforcement import NamedEnvironmentSettings, named_environments, plain_renderer, problem_files
from cookhouse.registry import Descent
from cookhouse.rl import EnvGroupBuilder, TrajectoryGroup, group_metrics
from cookhouse.settings import RolloutTrainingSettings
from cookhouse.settings.preference import ReferenceSettings
from cookhouse.training import Assembled
from cookhouse.workflows import RolloutState, SlotStage, init_evaluators, init_tokenizer, training_workflow
from cookhouse.algorithms.base.slots import batch_source, log_slot, objective_slot
from cookhouse.algorithms.base.summary import training_result
from cookhouse.algorithms.pairs.assembler import PairAssembler, PairPayload
from cookhouse.algorithms.pairs.dataset import Pair, sampled_pair
from cookhouse.algorithms.pairs.objective import pair_objective
from cookhouse.algorithms.pairs.reference import open_reference
from cookhouse.algorithms.rollouts.rollouts import build_env_group, init_session, publish_slot, sample_groups
from cookhouse.workflows.reinforcement.summary import figures, rollout_facts


@chz.chz
class Config(NamedEnvironmentSettings, RolloutTrainingSettings, ReferenceSettings):
    """Settings of environments, of rollouts in them, and of a loss over pairs with its reference."""

    env: str = "arithmetic"
    renderer_name: str = plain_renderer()
    batch_size: int = 16
    group_size: int = 8
    max_tokens: int = 8
    learning_rate: float = 1e-3


@dataclass(kw_only=True)
class State(RolloutState):
    """What stages hand on: what runs over rollouts have, and what turns pairs into datums."""

    config: Config
    pairs: PairAssembler = field(init=False)


@stage(reads=("config", "session", "folder"), writes=("objective", "pairs"), needs=("service",))
async def init_reference(state: State) -> None:
    """Choose the loss, and open the reference that it needs."""
    state.objective = pair_objective(state.config)
    registry = state.context.adapters.registry
    reference = await open_reference(state.config, state.session, state.folder, registry)
    state.pairs = PairAssembler(reference, state.telemetry)


def pair_of(group: TrajectoryGroup) -> Pair | None:
    """The best and the worst answer to a problem; None where all are worth the same."""
    rewards_G = group.get_total_rewards()
    best, worst = (group.trajectories_G[rewards_G.index(of(rewards_G))] for of in (max, min))
    return None if best is worst else sampled_pair(best, worst)


async def make_pairs(state: State, problems: Sequence[EnvGroupBuilder]) -> Assembled[PairPayload]:
    """Have the present weights answer the problems, and make datums of the pairs."""
    groups = await sample_groups(state, problems)
    pairs = [pair for group in groups if (pair := pair_of(group)) is not None]
    return replace(await state.pairs(pairs), metrics={**group_metrics(groups), "train/num_pairs": float(len(pairs))})


def workflow(config: Config) -> Workflow[State]:
    """The stages of a run."""
    return training_workflow(
        name="online_dpo",
        state_class=State,
        start=lambda context: State(context=context, config=config, environments=partial(named_environments, config)),
        setup=(init_tokenizer, build_env_group, init_evaluators, init_session, init_reference),
        get_work=SlotStage(
            name="make_pairs",
            make=lambda state: batch_source(state, partial(make_pairs, state), ahead=False),
            reads=(
                *("config", "train", "policy", "pairs", "context_tokens", "session"),
                *("total_steps", "steps_per_epoch", "cursor"),
            ),
        ),
        forward_backward=objective_slot("forward_backward"),
        log=log_slot("log_step_metrics"),
        publish=publish_slot(),
        descent=Descent.DPO_TRAINED_FROM,
        result=partial(training_result, figures),
        facts=lambda state: rollout_facts(state, loss=config.pair_loss),
        data_files=problem_files(config),
    )


RECIPE = Recipe(name="online_dpo", description="DPO on pairs of own answers.", config_class=Config, workflow=workflow)
