"""Answers that are too long: their reward, and whether they are trained on (https://arxiv.org/abs/2503.14476, 3.4)."""

from collections.abc import Sequence
from dataclasses import replace

from cookhouse.rl.trajectory import Trajectory, TrajectoryGroup
from cookhouse.settings.rollouts import OverlongSettings
from cookhouse.telemetry import keys


def soft_overlong_punishment(num_tokens: int, *, max_tokens: int, cache_tokens: int) -> float:
    """Amount that is added to the reward of an answer of so many tokens, from 0 down to −1 (equation 13).

    0 up to max − cache tokens, then ((max − cache) − tokens) / cache, and −1 from `max_tokens` on.
    """
    return max(-1.0, min(0.0, (max_tokens - cache_tokens - num_tokens) / cache_tokens))


def punish_overlong(group: TrajectoryGroup, settings: OverlongSettings) -> TrajectoryGroup:
    """The group with the punishment of each answer in the reward of its turn; one that was cut gets all of it."""
    return replace(group, trajectories_G=[_punished(trajectory, settings) for trajectory in group.trajectories_G])


def overlong_metrics(groups_P: Sequence[TrajectoryGroup], settings: OverlongSettings) -> dict[str, float]:
    """`rollouts/overlong_penalty` where answers are punished: what is taken from their rewards, a mean over answers."""
    if settings.overlong_answers != "punish":
        return {}
    values = [
        -value for group in groups_P for trajectory in group.trajectories_G for value in _values(trajectory, settings)
    ]
    return {keys.OVERLONG_PENALTY: sum(values) / len(values)} if values else {}


def is_masked(trajectory: Trajectory, settings: OverlongSettings) -> bool:
    """True if a trajectory is left out of the loss, because a limit of tokens ended it."""
    return settings.overlong_answers == "mask" and trajectory.is_truncated


def _punished(trajectory: Trajectory, settings: OverlongSettings) -> Trajectory:
    turns = zip(trajectory.transitions, _values(trajectory, settings), strict=True)
    return replace(trajectory, transitions=[replace(turn, reward=turn.reward + value) for turn, value in turns])


def _values(trajectory: Trajectory, settings: OverlongSettings) -> list[float]:
    actions = [transition.action for transition in trajectory.transitions]
    return [
        -1.0
        if action.is_truncated
        else soft_overlong_punishment(
            len(action.tokens), max_tokens=settings.max_tokens, cache_tokens=settings.overlong_cache
        )
        for action in actions
    ]
