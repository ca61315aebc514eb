"""Advantages against hand calculation, and the properties every group has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st

from cookhouse.errors import InputError, UnknownNameError
from cookhouse.rl import (
    ADVANTAGES,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    discounted_future_sum,
    gae,
    group_centered,
    leave_one_out,
    normalized,
    remove_constant_reward_groups,
)
from cookhouse.settings import AdvantageSettings

rewards = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=32)


def group_of(rewards_G_T: Sequence[Sequence[float]], group_rewards_G: Sequence[float] | None = None) -> TrajectoryGroup:
    def turn(reward: float) -> Transition:
        action = TokensWithLogprobs(tokens=[5], maybe_logprobs=[-1.0])
        return Transition(
            observation=tinker.ModelInput.from_ints([1]), action=action, reward=reward, episode_done=False
        )

    return TrajectoryGroup(
        trajectories_G=[
            Trajectory(transitions=[turn(r) for r in rewards_T], final_observation=tinker.ModelInput.empty())
            for rewards_T in rewards_G_T
        ],
        group_rewards_G=group_rewards_G or [0.0] * len(rewards_G_T),
        group_metrics_G=[{} for _ in rewards_G_T],
        tags=[],
        version=0,
    )


def advantages_of(group: TrajectoryGroup, **settings: Any) -> list[list[float]]:
    """Of the turns of each trajectory, by name as a run finds it."""
    chosen = AdvantageSettings(**settings)
    return [list(advantages_T) for advantages_T in ADVANTAGES.find(chosen.advantage)(group, chosen)]


def test_baselines_by_hand() -> None:
    # Mean 3, deviations −2, −1, 3; variance over 3 members 14/3; means of the others 4, 3.5, 1.5.
    rewards_G = [1.0, 2.0, 6.0]
    assert group_centered(rewards_G).tolist() == [-2.0, -1.0, 3.0]
    assert normalized(rewards_G) == pytest.approx(np.array([-2, -1, 3]) / (14 / 3) ** 0.5, rel=1e-8)
    assert leave_one_out(rewards_G).tolist() == [-3.0, -1.5, 4.5]
    assert leave_one_out([7.0]).tolist() == [0.0]


def test_gae_by_hand() -> None:
    # The figures of the specification: γ 0.99, λ 0.95; they hold only if the value after the last step is 0.
    assert gae([0, 0, 1], [0.5] * 3, 0.99, 0.95) == pytest.approx([0.43257, 0.46525, 0.5], abs=5e-6)
    # λ 0 is the one-step error, λ 1 the discounted return less the value.
    assert gae([1, 2], [3, 4], 0.5, 0.0).tolist() == [1 + 0.5 * 4 - 3, 2 - 4]
    assert gae([1, 2], [3, 4], 0.5, 1.0).tolist() == [1 + 0.5 * 2 - 3, 2 - 4]
    assert gae([], [], 0.5, 1.0).tolist() == []
    with pytest.raises(InputError, match="2 rewards and 1 values"):
        gae([1, 2], [3], 0.99, 0.95)


@given(rewards)
def test_advantages_sum_to_zero(rewards_G: list[float]) -> None:
    # A baseline that does not fit its group pushes all of it up or down.
    scale = max(1.0, max(abs(r) for r in rewards_G))
    for baseline in (group_centered, normalized, leave_one_out):
        advantages_G = baseline(rewards_G)
        assert advantages_G.dtype == np.float64, baseline
        # Rounding of the mean, which 1e-8 in the denominator of equal rewards enlarges.
        tolerance = 1e-10 * scale * len(rewards_G) * (1e8 if baseline is normalized else 1)
        assert abs(advantages_G.sum()) <= tolerance, baseline


@given(st.lists(st.floats(-10, 10), max_size=70), st.floats(0, 1))
def test_future_sums_are_those_of_the_plain_recurrence(x_T: list[float], gamma: float) -> None:
    expected, y = [], 0.0
    for x in reversed(x_T):
        y = x + gamma * y
        expected.append(y)
    assert discounted_future_sum(x_T, gamma) == pytest.approx(expected[::-1], rel=1e-9, abs=1e-9)


def test_every_turn_gets_the_advantage_of_its_trajectory() -> None:
    group = group_of([[0.0, 1.0], [0.0]], [2.0, 0.0])
    assert advantages_of(group) == [[1.5, 1.5], [-1.5]]
    assert advantages_of(group, advantage="normalized") == [pytest.approx([1, 1], rel=1e-7), pytest.approx([-1])]
    assert advantages_of(group, advantage="leave_one_out") == [[3.0, 3.0], [-3.0]]
    assert advantages_of(group, advantage="total_reward") == [[3.0, 3.0], [0.0]]


def test_gae_of_a_group_has_the_mean_reward_as_value_and_pays_the_group_last() -> None:
    group = group_of([[0.0, 1.0], [0.0, 0.0]], [2.0, 0.0])  # totals 3 and 0: value 1.5
    advantages_G = advantages_of(group, advantage="gae", gamma=0.9, gae_lambda=0.5)
    last = 3.0 - 1.5
    assert advantages_G[0] == pytest.approx([0.9 * 1.5 - 1.5 + 0.45 * last, last])
    assert advantages_G[1] == pytest.approx([0.9 * 1.5 - 1.5 - 0.45 * 1.5, -1.5])


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_gae_of_one_turn_is_group_centered(rewards_G: list[float]) -> None:
    group = group_of([[reward] for reward in rewards_G])
    assert np.concatenate(advantages_of(group, advantage="gae")) == pytest.approx(group_centered(rewards_G))


def test_an_unknown_advantage_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="group_centered"):
        ADVANTAGES.find("group_centred")


def test_groups_without_a_difference_are_removed() -> None:
    equal, other = group_of([[1.0], [1.0]]), group_of([[0.0], [1.0]])
    same_in_total = group_of([[0.0], [1.0]], [1.0, 0.0])
    assert remove_constant_reward_groups([equal, other, same_in_total]) == [other]
    assert remove_constant_reward_groups([equal, same_in_total]) == [equal]
    assert remove_constant_reward_groups([]) == []
