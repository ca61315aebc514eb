"""The trainer's logprobs of what was sampled, by the turns of each group."""

from collections.abc import Sequence

import pytest
import tinker
from tests.algorithms.base.kit import answered

from cookhouse.algorithms.rollouts.assembler import RolloutPayload
from cookhouse.algorithms.rollouts.pool import FinishedGroup
from cookhouse.algorithms.rollouts.rollout_log import GroupId
from cookhouse.algorithms.rollouts.trained_logprobs import trained_logprobs
from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition, assemble_group


def trajectory(*turns: tuple[Sequence[int], Sequence[int]], stop_reason: str = "done") -> Trajectory:
    """Of observations and actions."""
    transitions = [
        Transition(
            observation=tinker.ModelInput.from_ints(list(observation)),
            action=TokensWithLogprobs(tokens=list(action), maybe_logprobs=[-1.0] * len(action)),
            reward=0.0,
            episode_done=index == len(turns) - 1,
        )
        for index, (observation, action) in enumerate(turns)
    ]
    return Trajectory(transitions=transitions, final_observation=tinker.ModelInput.empty(), stop_reason=stop_reason)


def finished(number: int, *trajectories: Trajectory, is_taught: bool = True) -> FinishedGroup:
    group = TrajectoryGroup(
        trajectories_G=list(trajectories),
        group_rewards_G=[0.0] * len(trajectories),
        group_metrics_G=[{}] * len(trajectories),
        tags=[],
        version=0,
    )
    return FinishedGroup(id=GroupId(3, number), group=group, advantages=[] if is_taught else None)


def is_cut(each: Trajectory) -> bool:
    return each.stop_reason == "max_tokens"


def data_of(each: FinishedGroup) -> list[tinker.Datum]:
    assert each.group is not None
    advantages = [[0.0] * len(one.transitions) for one in each.group.trajectories_G]
    return assemble_group(each.group, advantages, is_masked=is_cut)


def payload_of(*groups: FinishedGroup) -> RolloutPayload:
    return RolloutPayload(num_datums_P=[len(data_of(each)) for each in groups], groups_P=groups)


def test_each_turn_has_the_logprobs_of_its_own_tokens() -> None:
    """Catches logprobs of observations among those of answers, and turns or groups that are shifted: the target at t
    has −t, so that the numbers tell where they come from.
    """
    first = finished(
        0,
        trajectory(([1, 2], [3, 4]), ([1, 2, 3, 4, 5], [6])),  # one datum
        trajectory(([1, 2], [3]), ([9, 9], [8, 7])),  # the second turn begins another
    )
    second = finished(1, trajectory(([1, 2, 3], [4])))
    data = [*data_of(first), *data_of(second)]
    assert len(data) == 4
    found = trained_logprobs([answered(data, payload=payload_of(first, second))], is_cut)
    assert found == {
        GroupId(3, 0): [[[-1.0, -2.0], [-4.0]], [[-1.0], [-1.0, -2.0]]],
        GroupId(3, 1): [[[-2.0]]],
    }


def test_what_was_not_trained_on_has_none() -> None:
    """Catches the logprobs of the next trajectory at one that was cut at its limit and left out."""
    group = finished(0, trajectory(([1], [2, 3]), stop_reason="max_tokens"), trajectory(([1], [2])))
    left_out = finished(1, trajectory(([1], [2])), is_taught=False)
    failed = FinishedGroup(id=GroupId(3, 2), group=None)
    payload = RolloutPayload(num_datums_P=[1, 0, 0], groups_P=[group, left_out, failed])
    found = trained_logprobs([answered(data_of(group), payload=payload)], is_cut)
    assert found == {GroupId(3, 0): [[None], [[0.0]]]}


def test_of_groups_that_are_trained_on_again_the_first_answer_counts() -> None:
    group = finished(0, trajectory(([1], [2])))
    parts = [answered(data_of(group), [[value]], payload=payload_of(group)) for value in (-0.5, -0.25)]
    assert trained_logprobs(parts) == {GroupId(3, 0): [[[-0.5]]]}


@pytest.mark.parametrize("number", range(2))
def test_pieces_of_a_step_each_have_their_groups(number: int) -> None:
    groups = [finished(each, trajectory(([1], [2]))) for each in range(2)]
    parts = [answered(data_of(each), [[-1.0 - each.id.number]], payload=payload_of(each)) for each in groups]
    assert trained_logprobs(parts)[GroupId(3, number)] == [[[-1.0 - number]]]
