"""Advantages: how much better than expected an action did. All float64.

Legend: G members of a group, T turns (or tokens) of one episode.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cookhouse.errors import InputError
from cookhouse.naming import OpenSet
from cookhouse.rl.trajectory import TrajectoryGroup, differ
from cookhouse.settings import AdvantageSettings

Floats: TypeAlias = NDArray[np.float64]
Advantages: TypeAlias = Callable[[TrajectoryGroup, AdvantageSettings], Sequence[Sequence[float] | Floats]]
"""Of a group: the advantage of each turn of each trajectory, in their order."""

_EPSILON = 1e-8


def group_centered(rewards_G: ArrayLike) -> Floats:
    """Reward minus the mean over the group (https://arxiv.org/abs/2503.20783)."""
    rewards = _floats(rewards_G)
    return rewards - float(np.mean(rewards))


def normalized(rewards_G: ArrayLike) -> Floats:
    """`group_centered` over the group's standard deviation (denominator G) + 1e-8 (https://arxiv.org/abs/2402.03300)."""
    centered_G = group_centered(rewards_G)
    return centered_G / (float(np.sqrt(np.mean(centered_G**2))) + _EPSILON)


def leave_one_out(rewards_G: ArrayLike) -> Floats:
    """Reward minus the mean over the other G − 1 members (https://arxiv.org/abs/2402.14740); 0 for a group of one."""
    rewards = _floats(rewards_G)
    num_others = rewards.size - 1
    return rewards - (rewards.sum() - rewards) / num_others if num_others > 0 else np.zeros_like(rewards)


def total_reward(rewards_G: ArrayLike) -> Floats:
    """Reward, with no baseline: REINFORCE. For advantages that are normalized over the batch."""
    return _floats(rewards_G)


def discounted_future_sum(x_T: ArrayLike, gamma: float) -> Floats:
    """y_t = Σ_{k ≥ t} γ^(k−t) · x_k.

    By doubling: after step j each y_t holds 2^j terms, so that log2 T vector operations do, and nothing is ever divided
    by a power of γ.
    """
    y_T = np.array(x_T, dtype=np.float64)
    span, weight = 1, gamma
    while span < y_T.size:
        y_T[:-span] += weight * y_T[span:].copy()
        span, weight = span * 2, weight * weight
    return y_T


def gae(rewards_T: ArrayLike, values_T: ArrayLike, gamma: float, lam: float) -> Floats:
    """Generalized advantage estimates (https://arxiv.org/abs/1506.02438, equation 16) of an episode that ended.

    A_t = Σ_k (γλ)^k δ_{t+k} with δ_t = r_t + γ·v_{t+1} − v_t. Nothing follows the last step: its v_{t+1} is 0.

    Raises:
        InputError: rewards and values of different lengths.
    """
    rewards, values = _floats(rewards_T), _floats(values_T)
    if rewards.shape != values.shape:
        raise InputError(f"gae got {rewards.size} rewards and {values.size} values; it needs one value per reward")
    next_values = np.append(values[1:], 0.0)[: values.size]
    return discounted_future_sum(rewards + gamma * next_values - values, gamma * lam)


def of_total_rewards(baseline: Callable[[ArrayLike], Floats]) -> Advantages:
    """Gives every turn of a trajectory what `baseline` makes of its total reward among those of the group."""

    def advantages(group: TrajectoryGroup, settings: AdvantageSettings) -> list[Floats]:
        del settings
        advantages_G = baseline(group.get_total_rewards())
        return [
            np.full(len(trajectory.transitions), advantage)
            for trajectory, advantage in zip(group.trajectories_G, advantages_G, strict=True)
        ]

    return advantages


def gae_advantages(group: TrajectoryGroup, settings: AdvantageSettings) -> list[Floats]:
    """`gae` without a critic: the value of every turn is the mean total reward of the group, and the group reward is
    paid on the last turn. On one-turn episodes that is `group_centered`.
    """
    rewards_G = group.get_total_rewards()
    value = float(np.mean(rewards_G))
    return [
        gae(rewards_T, np.full(len(rewards_T), value), settings.gamma, settings.gae_lambda)
        for rewards_T in (_turn_rewards(group, member) for member in range(len(rewards_G)))
    ]


def no_advantages(group: TrajectoryGroup, settings: AdvantageSettings) -> list[Floats]:
    """0 for every turn: what is learned comes from another source, such as a teacher."""
    del settings
    return [np.zeros(len(trajectory.transitions)) for trajectory in group.trajectories_G]


GROUP_CENTERED = of_total_rewards(group_centered)
NORMALIZED = of_total_rewards(normalized)
LEAVE_ONE_OUT = of_total_rewards(leave_one_out)
TOTAL_REWARD = of_total_rewards(total_reward)

ADVANTAGES: OpenSet[Advantages] = OpenSet(
    kind="advantage",
    group="cookhouse.advantages",
    builtin={
        "group_centered": f"{__name__}:GROUP_CENTERED",
        "normalized": f"{__name__}:NORMALIZED",
        "leave_one_out": f"{__name__}:LEAVE_ONE_OUT",
        "total_reward": f"{__name__}:TOTAL_REWARD",
        "gae": f"{__name__}:gae_advantages",
        "none": f"{__name__}:no_advantages",
    },
    check=lambda thing: thing if callable(thing) else None,
    wants="an advantage is a function of a group of trajectories and the settings",
    takes=("group", "settings"),
)


def rewards_differ(group: TrajectoryGroup) -> bool:
    """True if its trajectories have more total rewards than one, beyond rounding."""
    return differ(group.get_total_rewards())


def remove_constant_reward_groups(groups_P: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The groups whose total rewards differ. If none do, the first one: a step needs something."""
    kept = [group for group in groups_P if rewards_differ(group)]
    return kept or list(groups_P[:1])


def _turn_rewards(group: TrajectoryGroup, member: int) -> Floats:
    rewards_T = np.array([t.reward for t in group.trajectories_G[member].transitions], dtype=np.float64)
    rewards_T[-1:] += group.group_rewards_G[member]
    return rewards_T


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
