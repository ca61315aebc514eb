"""Groups to datums: what a reference and the logprobs of observations add, at which token."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
import tinker

from cookhouse.errors import InputError
from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition
from cookhouse.settings import AdvantageSettings
from cookhouse.telemetry import Telemetry
from cookhouse.workflows.reinforcement.assembler import RolloutAssembler

pytestmark = pytest.mark.anyio


def turn(observation: Sequence[int], action: Sequence[int], logprobs: Sequence[float]) -> Transition:
    return Transition(
        observation=tinker.ModelInput.from_ints(list(observation)),
        action=TokensWithLogprobs(tokens=action, maybe_logprobs=logprobs),
        reward=0.0,
        episode_done=False,
    )


def group(*turns: Transition, rewards: Sequence[float] = (1.0, 0.0)) -> TrajectoryGroup:
    """Members that did the same and were rewarded differently."""
    trajectory = Trajectory(transitions=turns, final_observation=tinker.ModelInput.empty())
    return TrajectoryGroup(
        trajectories_G=[trajectory] * len(rewards),
        group_rewards_G=rewards,
        group_metrics_G=[{} for _ in rewards],
        tags=[],
        version=0,
    )


TWO_TURNS = group(turn([1, 2], [3, 4], [-1.0, -2.0]), turn([1, 2, 3, 4, 5], [6], [-3.0]))


async def by_token(sequence: tinker.ModelInput) -> Sequence[float | None]:
    """Logprob −token/2 of each token; None of the first."""
    await asyncio.sleep(0)
    return [None, *(-token / 2 for token in sequence.to_ints()[1:])]


def values(datum: tinker.Datum, name: str) -> list[float]:
    return [float(value) for value in datum.loss_fn_inputs[name].to_numpy()]


async def test_a_penalty_is_against_the_logprob_of_the_same_token() -> None:
    # Catches reference logprobs that are shifted by one: each sampled token would be compared with its neighbor.
    batch = await RolloutAssembler(AdvantageSettings(kl_coef=1.0), Telemetry(), reference=by_token)([TWO_TURNS])
    # q − lp of the tokens 3, 4 and 6: −1 + 1.5, −2 + 2, −3 + 3, of both members.
    mean = 0.5 / 3
    assert batch.metrics == {"optim/kl_reference": pytest.approx(mean, rel=1e-6)}
    expected = [0.0, 0.5 + mean - 0.5, 0.5 + mean, 0.0, 0.5 + mean]
    assert values(batch.data_D[0], "advantages") == pytest.approx(expected, rel=1e-6)
    assert values(batch.data_D[0], "target_tokens") == [2, 3, 4, 5, 6]
    [advantages_G] = batch.payload.advantages_P
    assert advantages_G is not None
    assert [len(tokens) for tokens in advantages_G[1]] == [2, 1]
    assert np.concatenate([np.array(tokens) for tokens in advantages_G[1]]) == pytest.approx(
        [-0.5 + mean - 0.5, -0.5 + mean, -0.5 + mean], rel=1e-6
    )


async def test_a_penalty_is_discounted_as_the_settings_say() -> None:
    settings = AdvantageSettings(kl_coef=1.0, kl_gamma=0.5)
    batch = await RolloutAssembler(settings, Telemetry(), reference=by_token)([TWO_TURNS])
    # Terms at the five positions: 0, mean − 0.5, mean, 0 (an observation), mean.
    mean = 0.5 / 3
    at_2 = mean + 0.25 * mean
    expected = [0.0, 0.5 + mean - 0.5 + 0.5 * at_2, 0.5 + at_2, 0.0, 0.5 + mean]
    assert values(batch.data_D[0], "advantages") == pytest.approx(expected, rel=1e-6)


async def test_gae_discounts_as_the_settings_say() -> None:
    # Rewards 0, 1 and values 0.5: δ = γ/2 − 1/2 and 1/2 with γ 0.5, and γλ = 0.1.
    settings = AdvantageSettings(advantage="gae", gamma=0.5, gae_lambda=0.2)
    batch = await RolloutAssembler(settings, Telemetry())([TWO_TURNS])
    expected = [0.0, -0.25 + 0.1 * 0.5, -0.25 + 0.1 * 0.5, 0.0, 0.5]
    assert values(batch.data_D[0], "advantages") == pytest.approx(expected, rel=1e-6)


async def test_observations_get_the_logprob_of_the_same_token() -> None:
    batch = await RolloutAssembler(AdvantageSettings(), Telemetry(), observation_logprobs=by_token)([TWO_TURNS])
    assert values(batch.data_D[0], "logprobs") == [-1.0, -1.0, -2.0, -2.5, -3.0]
    assert values(batch.data_D[0], "mask") == [0, 1, 1, 0, 1]


async def test_groups_with_one_reward_are_left_out_and_said_to_be() -> None:
    constant = group(turn([1], [2], [-1.0]), rewards=(1.0, 1.0))
    settings = AdvantageSettings(remove_constant_reward_groups=True)
    batch = await RolloutAssembler(settings, Telemetry())([constant, TWO_TURNS])
    assert len(batch.data_D) == 2
    assert [advantages is None for advantages in batch.payload.advantages_P] == [True, False]


def credit_to_the_first(group: TrajectoryGroup, settings: AdvantageSettings) -> list[list[float]]:
    """Of the user's own: the first member's turns count up from gamma, the other's are worth nothing."""
    return [
        [(1.0 - member) * (turn + settings.gamma) for turn in range(len(trajectory.transitions))]
        for member, trajectory in enumerate(group.trajectories_G)
    ]


async def test_an_advantage_of_the_users_own_arrives_at_the_tokens_of_its_turn() -> None:
    settings = AdvantageSettings(advantage=f"{__file__}:credit_to_the_first", gamma=0.5)
    batch = await RolloutAssembler(settings, Telemetry())([TWO_TURNS])
    assert [values(datum, "advantages") for datum in batch.data_D] == [[0, 0.5, 0.5, 0, 1.5], [0, 0, 0, 0, 0]]
    assert batch.payload.advantages_P == [[[[0.5, 0.5], [1.5]], [[0, 0], [0]]]]


async def test_a_sample_without_logprobs_is_refused() -> None:
    broken = group(turn([1], [2, 3], [-1.0]))
    with pytest.raises(InputError, match="2 tokens and 1 logprobs"):
        await RolloutAssembler(AdvantageSettings(), Telemetry())([broken])
