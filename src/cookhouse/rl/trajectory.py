"""Records of rollouts: transitions, trajectories, and the groups that share a problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tinker

from cookhouse.errors import InputError
from cookhouse.rl.sampling.sampler import TokensWithLogprobs
from cookhouse.telemetry import Entry


def observed_tokens(observation: tinker.ModelInput) -> list[int]:
    """The tokens of an observation. Raises `InputError` if there is an image among them: rollouts are of text."""
    if not all(isinstance(chunk, tinker.EncodedTextChunk) for chunk in observation.chunks):
        raise InputError(
            "an observation holds an image, and rollouts are of text alone; say in words what is to be seen, or train "
            "on images by supervised"
        )
    return observation.to_ints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One turn: what the model saw, what it sampled, and what it got for it."""

    observation: tinker.ModelInput
    action: TokensWithLogprobs
    reward: float
    episode_done: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[Entry] = field(default_factory=list)
    """What the environment noted (`scope`, `note`, `table`) since the turn before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode. `final_observation` is what the model would have seen next; empty where the episode ended itself."""

    transitions: Sequence[Transition]
    final_observation: tinker.ModelInput
    stop_reason: str = "done"
    """`done`, or the limit that ended it: `max_turns`, `max_tokens`, `max_tool_calls`."""

    @property
    def reward(self) -> float:
        """Sum of the rewards of its steps; that of the group is not in it."""
        return sum(transition.reward for transition in self.transitions)

    @property
    def is_truncated(self) -> bool:
        """True if a limit of tokens ended it: that of its last answer, or `max_sequence_tokens`."""
        last_is_cut = bool(self.transitions) and self.transitions[-1].action.is_truncated
        return last_is_cut or self.stop_reason == "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFailure:
    """A rollout that gave no trajectory, and why."""

    member: int
    """Index within the group, or -1 where the group as a whole failed."""
    attempt: int
    """Counts the attempts at this member from 0."""
    origin: str
    """`env`, `sampling`, or `partner` where a member failed with whom this one plays."""
    reason: str
    """Class and message of the exception; of a partner's failure, whose it was."""
    outcome: str = "given_up"
    """What became of the member: `given_up`, `retried`, or `kept` where its environment only failed to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryGroup:
    """Trajectories that share a problem, sampled from one version of the weights."""

    trajectories_G: Sequence[Trajectory]
    group_rewards_G: Sequence[float]
    group_metrics_G: Sequence[Mapping[str, float]]
    tags: Sequence[str]
    version: int
    """Training steps behind the weights that sampled it."""
    failures: Sequence[RolloutFailure] = ()
    seconds: float = 0.0
    """From the first request until the group rewards were there."""
    entries: Sequence[Entry] = field(default_factory=list)
    """What was noted where the group was made and rewarded."""

    def get_total_rewards(self) -> list[float]:
        """Of each trajectory: the sum of its steps' rewards plus its group reward."""
        return [
            trajectory.reward + group_reward
            for trajectory, group_reward in zip(self.trajectories_G, self.group_rewards_G, strict=True)
        ]


_TOLERANCE = 1e-9
_LEAST = 1e-12


def differ(rewards_G: Sequence[float]) -> bool:
    """True if rewards differ by more than rounding: sums of the same parts in another order are equal."""
    if not rewards_G:
        return False
    spread = max(rewards_G) - min(rewards_G)
    return spread > max(_LEAST, _TOLERANCE * max(map(abs, rewards_G)))
