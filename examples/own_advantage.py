"""An advantage of one's own: where a rollout ranks in its group, rather than how much more it earned.

    cookhouse run rl advantage=examples/own_advantage.py:ranked

Rewards of very different sizes then count alike; what is equal shares its rank.
"""

import numpy as np

from cookhouse.rl import TrajectoryGroup
from cookhouse.settings import AdvantageSettings


def ranked(group: TrajectoryGroup, settings: AdvantageSettings) -> list[list[float]]:
    """From -1 for the worst of a group to 1 for the best, the same for every turn of a rollout."""
    del settings
    rewards_G = np.array(group.get_total_rewards())
    below_G = (rewards_G[:, None] > rewards_G[None, :]).sum(axis=1)
    above_G = (rewards_G[:, None] < rewards_G[None, :]).sum(axis=1)
    ranks_G = (below_G - above_G) / max(len(rewards_G) - 1, 1)
    return [
        [float(rank)] * len(trajectory.transitions)
        for rank, trajectory in zip(ranks_G, group.trajectories_G, strict=True)
    ]
