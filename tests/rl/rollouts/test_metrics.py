"""Figures of groups and of failures, by hand."""

import math
import statistics
from collections.abc import Mapping, Sequence

import pytest
import tinker

from cookhouse.rl import (
    GroupFailedError,
    RolloutFailure,
    TokensWithLogprobs,
    Trajectory,
    TrajectoryGroup,
    Transition,
    failure_metrics,
    group_metrics,
)


def turn(
    num_observed: int,
    num_sampled: int,
    *,
    reward: float = 0.0,
    metrics: Mapping[str, float] | None = None,
    is_truncated: bool = False,
) -> Transition:
    return Transition(
        observation=tinker.ModelInput.from_ints([1] * num_observed),
        action=TokensWithLogprobs(
            tokens=[2] * num_sampled, maybe_logprobs=[-1.0] * num_sampled, is_truncated=is_truncated
        ),
        reward=reward,
        episode_done=False,
        metrics=metrics or {},
    )


def group(
    turns_G: Sequence[Sequence[Transition]],
    *,
    tags: Sequence[str] = (),
    group_rewards_G: Sequence[float] | None = None,
    group_metrics_G: Sequence[Mapping[str, float]] | None = None,
    failures: Sequence[RolloutFailure] = (),
    stop_reason: str = "done",
) -> TrajectoryGroup:
    return TrajectoryGroup(
        trajectories_G=[
            Trajectory(transitions=turns, final_observation=tinker.ModelInput.empty(), stop_reason=stop_reason)
            for turns in turns_G
        ],
        group_rewards_G=group_rewards_G or [0.0] * len(turns_G),
        group_metrics_G=group_metrics_G or [{} for _ in turns_G],
        tags=tags,
        version=0,
        failures=failures,
    )


def test_figures_by_hand() -> None:
    mixed = group(
        [
            [turn(3, 1, metrics={"format": 1.0}), turn(6, 2, reward=1.0, metrics={"format": 0.0, "correct": 1.0})],
            [turn(3, 5, metrics={"format": 1.0}, is_truncated=True)],
        ],
        group_rewards_G=[0.5, 0.0],
        group_metrics_G=[{"won": 1.0}, {"won": 0.0}],
    )
    bad = group([[turn(4, 4)]], stop_reason="max_turns")
    metrics = group_metrics([mixed, bad])
    assert metrics == {
        "env/all/reward/total": 1.5 / 3,
        # Sums of what deviates from 0.5: 0.5 in the first group, −0.5 in the second.
        "env/all/reward/total_stderr": math.sqrt(2 * (0.25 + 0.25)) / 3,
        "env/all/reward/total_std": pytest.approx(math.sqrt((1.0 + 0.25 + 0.25) / 3)),
        "env/all/total_groups": 2,
        "env/all/total_episodes": 3,
        "env/all/total_turns": 4,
        "env/all/total_ac_tokens": 12,
        "env/all/turns_per_episode": 4 / 3,
        "env/all/ac_tokens_per_turn": 12 / 4,
        "env/all/ob_tokens_per_turn": 16 / 4,
        "env/all/by_group/frac_mixed": 0.5,
        "env/all/by_group/frac_all_good": 0.0,
        "env/all/by_group/frac_all_bad": 0.5,
        "env/all/stop/done": 2 / 3,
        "env/all/stop/max_turns": 1 / 3,
        "env/all/frac_truncated": 1 / 3,
        "env/all/correct": 1.0,  # over the one step that reported it
        "env/all/correct_n": 1,
        "env/all/format": 2 / 3,
        "env/all/format_n": 3,
        "env/all/won": 0.5,
        "env/all/won_n": 2,
    }


def test_the_standard_error_is_that_of_independent_problems() -> None:
    # Catches rollouts of one problem counted as if each were another problem: four times as many would look sure.
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0]
    single = group_metrics([group([[turn(1, 1, reward=reward)]]) for reward in rewards])
    assert single["env/all/reward/total_stderr"] == pytest.approx(statistics.stdev(rewards) / math.sqrt(5), rel=1e-12)
    repeated = group_metrics([group([[turn(1, 1, reward=reward)]] * 4) for reward in rewards])
    assert repeated["env/all/reward/total_stderr"] == pytest.approx(single["env/all/reward/total_stderr"], rel=1e-12)
    assert (repeated["env/all/total_groups"], repeated["env/all/total_episodes"]) == (5, 20)


def test_an_own_metric_has_its_error_and_its_number_of_reports() -> None:
    metrics = group_metrics([group([[turn(1, 1, metrics={"correct": value})]]) for value in (1.0, 0.0, 1.0, 1.0)])
    assert metrics["env/all/correct_n"] == 4
    assert metrics["env/all/correct_stderr"] == pytest.approx(0.25, rel=1e-12)


def test_one_problem_has_no_standard_error() -> None:
    assert not [name for name in group_metrics([group([[turn(1, 1)]] * 9)]) if name.endswith("_stderr")]


@pytest.mark.parametrize(("reward", "kind"), [(0.49, "all_bad"), (0.5, "all_good"), (1.0, "all_good")])
def test_a_group_of_equal_rewards_is_good_or_bad(reward: float, kind: str) -> None:
    metrics = group_metrics([group([[turn(1, 1, reward=reward)]] * 2)])
    assert {k for k in ("mixed", "all_good", "all_bad") if metrics[f"env/all/by_group/frac_{k}"]} == {kind}


def test_tags_that_split_the_batch_are_reported_apart() -> None:
    # A tag on every group would only repeat `all`.
    easy = group([[turn(1, 1, reward=1.0)]], tags=["math", "easy"])
    hard = group([[turn(1, 1, reward=0.0)]], tags=["math"])
    metrics = group_metrics([easy, hard])
    assert {name.split("/")[1] for name in metrics} == {"all", "easy"}
    assert metrics["env/easy/reward/total"] == 1.0
    assert metrics["env/all/reward/total"] == 0.5


def test_nothing_gives_no_figure() -> None:
    assert group_metrics([]) == {}


def test_failures_are_counted_by_origin_and_by_what_became_of_them() -> None:
    def failure(member: int, attempt: int, origin: str, outcome: str) -> RolloutFailure:
        return RolloutFailure(member=member, attempt=attempt, origin=origin, reason="E: x", outcome=outcome)

    came_back = group(
        [[turn(1, 1)]],
        failures=[
            failure(0, 0, "env", "retried"),
            failure(0, 1, "sampling", "retried"),
            failure(1, 0, "env", "retried"),
            failure(1, 1, "env", "given_up"),
            failure(2, 0, "env", "kept"),
        ],
    )
    lost = GroupFailedError([failure(3, 0, "sampling", "given_up")])
    assert failure_metrics([came_back], [lost]) == {
        "rollouts/failures/env": 4,
        "rollouts/failures/sampling": 2,
        "rollouts/retried": 1,
        "rollouts/dropped": 1,
        "rollouts/groups_failed": 1,
    }
    assert set(failure_metrics([]).values()) == {0.0}


def test_names_moved_aside_do_not_meet_each_other() -> None:
    """Would catch a user's figure in the place of the count of another that was moved."""
    metrics = group_metrics([group([[turn(1, 1, metrics={"reward/total": 9.0, "reward/total_n": 3.0})]])])
    assert metrics["env/all/own/reward/total"] == 9
    assert metrics["env/all/own/reward/total_n"] == 1
    assert metrics["env/all/own/own/reward/total_n"] == 3
