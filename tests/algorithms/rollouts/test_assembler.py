"""Groups to datums: what a reference and the logprobs of observations add, at which token."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import tinker

from cookhouse.algorithms.rollouts.assembler import RolloutAssembler
from cookhouse.errors import InputError
from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition
from cookhouse.settings import AdvantageSettings
from cookhouse.settings.rollouts import OverlongSettings
from cookhouse.telemetry import Telemetry

pytestmark = pytest.mark.anyio


def turn(
    observation: Sequence[int], action: Sequence[int], logprobs: Sequence[float], *, is_truncated: bool = False
) -> Transition:
    return Transition(
        observation=tinker.ModelInput.from_ints(list(observation)),
        action=TokensWithLogprobs(tokens=action, maybe_logprobs=logprobs, is_truncated=is_truncated),
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


async def test_groups_with_one_reward_are_left_out() -> None:
    constant = group(turn([1], [2], [-1.0]), rewards=(1.0, 1.0))
    settings = AdvantageSettings(constant_reward_groups="remove")
    batch = await RolloutAssembler(settings, Telemetry())([constant, TWO_TURNS])
    assert len(batch.data_D) == 2
    assert [advantages is None for advantages in batch.payload.advantages_P] == [True, False]


def one_turn(*answers: Transition, rewards: Sequence[float]) -> TrajectoryGroup:
    """Members that each give an answer."""
    trajectories = [Trajectory(transitions=[a], final_observation=tinker.ModelInput.empty()) for a in answers]
    return replace(group(rewards=rewards), trajectories_G=trajectories)


async def test_reinforce_plus_plus_by_hand() -> None:
    # Catches a penalty whose mean is subtracted before it is summed up, which would reward an answer for its length,
    # and a baseline of the group.
    # q − lp with lp −token/2: 1 and 0.5 of the first answer, 0 of the other. Sums of what is left: 1.5, 0.5 and 0.
    first = turn([1], [4, 3], [-1.0, -1.0])
    second = turn([1], [2], [-1.0])
    settings = AdvantageSettings(advantage="total_reward", advantage_normalization="batch", kl_coef=2.0, kl_gamma=1.0)
    batch = await RolloutAssembler(settings, Telemetry(), reference=by_token)(
        [one_turn(first, second, rewards=[4.0, 1.0])]
    )
    raw = np.array([4 - 2 * 1.5, 4 - 2 * 0.5, 1.0])  # 1, 3, 1
    expected = (raw - raw.mean()) / raw.std()
    assert values(batch.data_D[0], "advantages") == pytest.approx(expected[:2], rel=1e-6)
    assert values(batch.data_D[1], "advantages") == pytest.approx(expected[2:], rel=1e-6)
    assert batch.metrics == {"optim/kl_reference": pytest.approx(1.5 / 3)}
    [advantages_G] = batch.payload.advantages_P
    assert advantages_G is not None
    assert advantages_G[1][0] == pytest.approx(expected[2:], rel=1e-6), "recorded as they are trained"


async def test_the_batch_is_all_groups_that_are_assembled() -> None:
    # Catches a normalization of each group by itself, which makes an easy problem count as much as a hard one.
    settings = AdvantageSettings(advantage_normalization="batch")
    answer = turn([1], [2], [-1.0])
    groups = [one_turn(answer, answer, rewards=[high, 0.0]) for high in (1.0, 3.0)]
    batch = await RolloutAssembler(settings, Telemetry())(groups)
    found = [values(datum, "advantages")[0] for datum in batch.data_D]
    assert found == pytest.approx(np.array([0.5, -0.5, 1.5, -1.5]) / 1.25**0.5, rel=1e-6)


async def test_an_answer_that_was_cut_is_masked_and_still_a_baseline_for_the_others() -> None:
    # Catches a reward that is taken out of the mean as well, and advantages recorded for the wrong member.
    cut, whole = turn([1], [2, 3], [-1.0, -1.0], is_truncated=True), turn([1], [4], [-1.0])
    other = one_turn(whole, whole, rewards=[1.0, 0.0])
    assemble = RolloutAssembler(AdvantageSettings(), Telemetry(), overlong=OverlongSettings(overlong_answers="mask"))
    batch = await assemble([one_turn(cut, whole, whole, rewards=[0.0, 1.0, 2.0]), other])
    assert [values(datum, "target_tokens") for datum in batch.data_D] == [[4]] * 4
    assert [values(datum, "advantages") for datum in batch.data_D] == [[0], [1], [0.5], [-0.5]]
    assert batch.payload.advantages_P == [[[[0.0, 0.0]], [[0.0]], [[1.0]]], [[[0.5]], [[-0.5]]]]
    assert batch.payload.num_datums_P == [2, 2]


async def test_a_batch_of_cut_answers_alone_has_no_datum() -> None:
    cut = turn([1], [2], [-1.0], is_truncated=True)
    settings, overlong = AdvantageSettings(advantage_normalization="batch"), OverlongSettings(overlong_answers="mask")
    batch = await RolloutAssembler(settings, Telemetry(), overlong=overlong)([one_turn(cut, cut, rewards=[0, 1])])
    assert (batch.data_D, batch.payload.num_datums_P) == ([], [0])


async def test_a_punishment_changes_advantages_and_not_which_groups_are_left_out() -> None:
    # Catches groups that are wrong throughout and kept because their answers differ in length.
    overlong = OverlongSettings(overlong_answers="punish", max_tokens=4, overlong_cache_tokens=2)
    long, short = turn([1], [2, 3, 4], [-1.0] * 3), turn([1], [2], [-1.0])
    settings = AdvantageSettings(constant_reward_groups="remove")
    groups = [one_turn(long, short, rewards=[0.0, 0.0]), one_turn(long, short, rewards=[2.0, 0.0])]
    batch = await RolloutAssembler(settings, Telemetry(), overlong=overlong)(groups)
    assert [values(datum, "advantages") for datum in batch.data_D] == [[0.75] * 3, [-0.75]]  # rewards 1.5 and 0
    assert batch.payload.num_datums_P == [0, 2]


@pytest.mark.parametrize(
    "settings", [AdvantageSettings(), AdvantageSettings(constant_reward_groups="remove")], ids=["keep", "remove"]
)
async def test_a_step_without_a_spread_takes_no_gradient_from_the_punishment(settings: AdvantageSettings) -> None:
    # Catches a step in which every answer is equally wrong, and the model learns to be short and nothing else.
    overlong = OverlongSettings(overlong_answers="punish", max_tokens=4, overlong_cache_tokens=2)
    long, short = turn([1], [2, 3, 4], [-1.0] * 3), turn([1], [2], [-1.0])
    groups = [one_turn(long, short, rewards=[0.0, 0.0]), one_turn(short, long, rewards=[1.0, 1.0])]
    batch = await RolloutAssembler(settings, Telemetry(), overlong=overlong)(groups)
    assert batch.data_D
    assert [value for datum in batch.data_D for value in values(datum, "advantages") if value] == []


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


async def test_a_rollout_that_forks_is_counted_once() -> None:
    """Catches sequences that are counted as rollouts, of which each would weigh as much as one that is whole."""
    forked = [turn([1, 2], [3, 4], [-1.0, -2.0]), turn([7, 8], [9], [-1.0])]
    whole = one_turn(turn([1], [2], [-1.0]), turn([1], [3], [-1.0]), rewards=[1.0, 0.0])
    batch = await RolloutAssembler(AdvantageSettings(), Telemetry())([group(*forked), whole])
    assert batch.payload.num_datums_P == [4, 2]
    assert batch.payload.num_datums_P_G == [[2, 2], [1, 1]]
    # The baseline is the mean of two rewards, and not of those of four sequences.
    assert [values(datum, "advantages")[-1] for datum in batch.data_D[:4]] == [0.5, 0.5, -0.5, -0.5]
