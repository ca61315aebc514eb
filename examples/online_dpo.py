"""Online DPO (https://arxiv.org/abs/2402.04792): pairs of the model's own answers, trained on as preferences.

    cookhouse run examples/online_dpo.py:RECIPE max_steps=20

Each step the present weights answer problems; of each problem the best and the worst answer make a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import chz

from cookhouse import Recipe
from cookhouse import algorithms as alg
from cookhouse.recipes import NamedEnvironmentSettings, named_environments, plain_renderer
from cookhouse.rl import EnvGroupBuilder, TrajectoryGroup, group_metrics
from cookhouse.settings import ReferenceSettings, RolloutTrainingSettings


@chz.chz
class Config(NamedEnvironmentSettings, RolloutTrainingSettings, ReferenceSettings):
    env: str = "arithmetic"
    renderer_name: str = plain_renderer()
    batch_size: int = 16
    max_tokens: int = 8
    learning_rate: float = 2e-3


@dataclass(kw_only=True)
class State(alg.RolloutState):
    config: Config
    pairs: alg.PairAssembler = field(init=False)


def pair_of(group: TrajectoryGroup) -> alg.Pair | None:
    """The best and the worst answer to a problem; None where all are worth the same."""
    rewards_G = group.get_total_rewards()
    best, worst = (group.trajectories_G[rewards_G.index(of(rewards_G))] for of in (max, min))
    return None if best is worst else alg.sampled_pair(best, worst)


@alg.stage()
def make_pairs(rollouts: alg.OpenedRollouts, pairs: alg.PairAssembler, steps: alg.Steps) -> alg.BatchSource[Any, Any]:
    async def assemble(problems: Sequence[EnvGroupBuilder]) -> alg.Assembled[alg.PairPayload]:
        groups = await rollouts.sample_groups(problems)
        found = [pair for group in groups if (pair := pair_of(group)) is not None]
        return replace(await pairs(found), metrics={**group_metrics(groups), "train/num_pairs": float(len(found))})

    return alg.batch_source(rollouts.problems.batches, assemble, steps, rollouts.opened, ahead=False)


def workflow(config: Config) -> alg.Workflow[State]:
    return alg.rollout_workflow(
        "online_dpo", State, config, partial(named_environments, config), get_work=make_pairs, setup=(alg.init_pairs,)
    )


RECIPE = Recipe(name="online_dpo", description="DPO on pairs of own answers.", config_class=Config, workflow=workflow)
