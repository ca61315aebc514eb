"""Reinforcement learning apart from the loop: environments, rollouts, advantages, and the datums made of them."""

from cookhouse.rl.env import Env, EnvGroupBuilder, Metrics, RLDataset, RLDatasetBuilder, StepResult, StopCondition
from cookhouse.rl.sampler import GroupSampler, TokensWithLogprobs
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup, Transition

__all__ = [
    "Env",
    "EnvGroupBuilder",
    "GroupSampler",
    "Metrics",
    "RLDataset",
    "RLDatasetBuilder",
    "RolloutFailure",
    "StepResult",
    "StopCondition",
    "TokensWithLogprobs",
    "Trajectory",
    "TrajectoryGroup",
    "Transition",
]
