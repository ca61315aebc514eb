"""Reinforcement learning apart from the loop: environments, rollouts, advantages, and the datums made of them."""

from cookhouse.rl.env.env import (
    Closable,
    Env,
    EnvGroupBuilder,
    Metrics,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)
from cookhouse.rl.env.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from cookhouse.rl.env.tool_env import Tool, ToolEnv, ToolError, tool
from cookhouse.rl.learning.advantages import (
    ADVANTAGES,
    discounted_future_sum,
    gae,
    group_centered,
    leave_one_out,
    normalized,
    remove_constant_reward_groups,
)
from cookhouse.rl.learning.assembly import (
    GroupAdvantages,
    assemble_group,
    assemble_trajectory,
    for_loss,
    sampled_datums,
    trained_advantages,
)
from cookhouse.rl.learning.kl import (
    TeacherTerm,
    clip_metrics,
    divergence_by_position,
    kl_metrics,
    kl_penalty,
    sampling_metrics,
    teacher_advantages,
    teacher_log_ratio,
)
from cookhouse.rl.rollouts.episode import NO_LIMITS
from cookhouse.rl.rollouts.failures import FAIL_FAST, GroupFailedError, minimum_viable, retry
from cookhouse.rl.rollouts.group import do_group_rollout
from cookhouse.rl.rollouts.metrics import failure_metrics, group_metrics
from cookhouse.rl.rollouts.transcript import group_from_json, group_to_json
from cookhouse.rl.sampling.completers import (
    ClientTokenCompleter,
    MessageCompleter,
    RenderedMessageCompleter,
    TokenCompleter,
)
from cookhouse.rl.sampling.noop import NoopMessageCompleter, NoopTokenCompleter, noop_completer
from cookhouse.rl.sampling.sampler import GroupSampler, StopCondition, TokensWithLogprobs
from cookhouse.rl.sampling.seeds import derive_seed
from cookhouse.rl.trajectory import RolloutFailure, Trajectory, TrajectoryGroup, Transition
from cookhouse.sampling_client import SamplingClient
from cookhouse.settings import RolloutLimits, RolloutStrategy

__all__ = [
    "ADVANTAGES",
    "FAIL_FAST",
    "NO_LIMITS",
    "ClientTokenCompleter",
    "Closable",
    "Env",
    "EnvFromMessageEnv",
    "EnvGroupBuilder",
    "GroupAdvantages",
    "GroupFailedError",
    "GroupSampler",
    "MessageCompleter",
    "MessageEnv",
    "MessageStepResult",
    "Metrics",
    "NoopMessageCompleter",
    "NoopTokenCompleter",
    "RLDataset",
    "RLDatasetBuilder",
    "RenderedMessageCompleter",
    "RolloutFailure",
    "RolloutLimits",
    "RolloutStrategy",
    "SamplingClient",
    "StepResult",
    "StopCondition",
    "TeacherTerm",
    "TokenCompleter",
    "TokensWithLogprobs",
    "Tool",
    "ToolEnv",
    "ToolError",
    "Trajectory",
    "TrajectoryGroup",
    "Transition",
    "assemble_group",
    "assemble_trajectory",
    "clip_metrics",
    "derive_seed",
    "discounted_future_sum",
    "divergence_by_position",
    "do_group_rollout",
    "failure_metrics",
    "for_loss",
    "gae",
    "group_centered",
    "group_from_json",
    "group_metrics",
    "group_to_json",
    "kl_metrics",
    "kl_penalty",
    "leave_one_out",
    "minimum_viable",
    "noop_completer",
    "normalized",
    "remove_constant_reward_groups",
    "retry",
    "sampled_datums",
    "sampling_metrics",
    "teacher_advantages",
    "teacher_log_ratio",
    "tool",
    "trained_advantages",
]
