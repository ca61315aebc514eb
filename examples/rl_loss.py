"""A policy loss and an advantage of one's own: SPO (https://arxiv.org/abs/2401.16025) over ranks in the group.

    cookhouse run examples/rl_loss.py:RECIPE max_steps=20

With r the new over the old probability of a token and A its advantage, SPO maximizes r·A − |A|·(r − 1)² / 2ε: the
penalty turns the gradient back where r leaves 1 ± ε, in place of clipping it to 0.
"""

from functools import partial

import chz
import numpy as np
import tinker
import torch

from cookhouse import Recipe
from cookhouse.recipes import NamedEnvironmentSettings, named_environments, plain_renderer
from cookhouse.rl import TrajectoryGroup
from cookhouse.settings import AdvantageSettings, ReinforcementSettings
from cookhouse.workflows import ReinforcementState, Workflow, reinforcement_workflow

EPSILON = 0.2


def ranked(group: TrajectoryGroup, settings: AdvantageSettings) -> list[list[float]]:
    """From -1 for the worst of a group to 1 for the best, the same for every turn of a rollout."""
    del settings
    rewards_G = np.array(group.get_total_rewards())
    ranks_G = np.sign(rewards_G[:, None] - rewards_G[None, :]).sum(axis=1) / max(len(rewards_G) - 1, 1)
    return [[float(rank)] * len(each.transitions) for rank, each in zip(ranks_G, group.trajectories_G, strict=True)]


def spo(data: list[tinker.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
    """Sum over the sampled tokens, whose advantages alone are not 0, of the negated objective."""
    loss, moved = torch.zeros(()), []
    for datum, new_T in zip(data, logprobs, strict=True):
        old_T, advantages_T = (torch.from_numpy(datum.loss_fn_inputs[k].to_numpy()) for k in ("logprobs", "advantages"))
        ratio_T = torch.where(advantages_T != 0, (new_T - old_T).exp(), 1.0)
        loss = loss - (ratio_T * advantages_T - advantages_T.abs() * (ratio_T - 1) ** 2 / (2 * EPSILON)).sum()
        moved.append(float((ratio_T - 1).abs().max().detach()))
    return loss, {"largest_ratio_change": max(moved, default=0.0)}


@chz.chz
class Config(NamedEnvironmentSettings, ReinforcementSettings):
    env: str = "arithmetic"
    renderer_name: str = plain_renderer()
    batch_size: int = 16
    max_tokens: int = 8
    learning_rate: float = 2e-3
    advantage: str = f"{__file__}:ranked"
    loss_fn: str = f"{__file__}:spo"


def workflow(config: Config) -> Workflow[ReinforcementState]:
    return reinforcement_workflow(config, partial(named_environments, config))


RECIPE = Recipe(name="spo", description="SPO over ranks in a group.", config_class=Config, workflow=workflow)
