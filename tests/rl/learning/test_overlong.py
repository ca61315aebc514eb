"""What too long an answer costs, by hand."""

from typing import Any

import pytest
import tinker

from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition
from cookhouse.rl.learning.overlong import is_masked, overlong_metrics, punish_overlong, soft_overlong_punishment
from cookhouse.settings.rollouts import OverlongSettings


def answer(num_tokens: int, reward: float = 1.0, *, is_truncated: bool = False) -> Transition:
    action = TokensWithLogprobs(tokens=[2] * num_tokens, maybe_logprobs=[-1.0] * num_tokens, is_truncated=is_truncated)
    return Transition(observation=tinker.ModelInput.from_ints([1]), action=action, reward=reward, episode_done=False)


def episode(*turns: Transition, stop_reason: str = "done") -> Trajectory:
    return Trajectory(transitions=turns, final_observation=tinker.ModelInput.empty(), stop_reason=stop_reason)


def group(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(
        trajectories_G=trajectories,
        group_rewards_G=[0.5] * len(trajectories),
        group_metrics_G=[{}] * len(trajectories),
        tags=[],
        version=0,
    )


PUNISH = OverlongSettings(overlong_answers="punish", max_tokens=20, overlong_cache_tokens=5)


@pytest.mark.parametrize(
    ("num_tokens", "expected"), [(1, 0.0), (15, 0.0), (16, -0.2), (18, -0.6), (20, -1.0), (21, -1.0), (90, -1.0)]
)
def test_the_punishment_by_hand(num_tokens: int, expected: float) -> None:
    # Catches a cache that begins one token early, and a reward for what is short.
    assert soft_overlong_punishment(num_tokens, max_tokens=20, cache_tokens=5) == pytest.approx(expected)


def test_the_published_numbers() -> None:
    # 16,384 tokens are expected, and 4,096 more are the cache.
    settings = OverlongSettings(overlong_answers="punish", max_tokens=20_480)
    assert settings.overlong_cache == 4096
    at = [soft_overlong_punishment(n, max_tokens=20_480, cache_tokens=4096) for n in (16_384, 18_432, 20_480)]
    assert at == [0.0, -0.5, -1.0]
    assert OverlongSettings(overlong_answers="punish", max_tokens=3).overlong_cache == 1, "never none"


def test_each_answer_is_punished_in_its_own_turn() -> None:
    # Catches a punishment of the episode's length, which no limit is of, and one that group rewards lose.
    punished = punish_overlong(group(episode(answer(16), answer(3)), episode(answer(15, reward=0.0))), PUNISH)
    rewards = [[turn.reward for turn in trajectory.transitions] for trajectory in punished.trajectories_G]
    assert rewards == [[pytest.approx(0.8), 1.0], [0.0]]
    assert punished.get_total_rewards() == [pytest.approx(0.8 + 1.0 + 0.5), 0.5]


def test_an_answer_that_was_cut_early_would_have_gone_on() -> None:
    # Catches an answer that the context cut, before max_tokens, and that goes unpunished.
    [trajectory] = punish_overlong(group(episode(answer(4, is_truncated=True))), PUNISH).trajectories_G
    assert trajectory.reward == 0.0


def test_the_figure_is_a_mean_over_answers() -> None:
    groups = [group(episode(answer(16), answer(18))), group(episode(answer(1)), episode(answer(20)))]
    found = overlong_metrics(groups, PUNISH)
    assert found == {"rollouts/overlong_penalty": pytest.approx((0.2 + 0.6 + 0.0 + 1.0) / 4)}
    assert overlong_metrics([], PUNISH) == overlong_metrics(groups, OverlongSettings()) == {}


@pytest.mark.parametrize(
    ("trajectory", "expected"),
    [
        (episode(answer(4)), False),
        (episode(answer(4, is_truncated=True)), True),
        (episode(answer(4, is_truncated=True), answer(4)), False),
        (episode(answer(4), stop_reason="max_tokens"), True),
        (episode(answer(4), stop_reason="max_turns"), False),
    ],
    ids=["ended", "cut", "cut and gone on", "no room left", "out of turns"],
)
def test_what_a_limit_of_tokens_ended_is_masked(trajectory: Trajectory, expected: bool) -> None:
    # Catches an episode that is left out although its last answer ended by itself.
    settings: dict[str, Any] = {"max_tokens": 4}
    assert is_masked(trajectory, OverlongSettings(overlong_answers="mask", **settings)) is expected
    assert not is_masked(trajectory, OverlongSettings(**settings))
