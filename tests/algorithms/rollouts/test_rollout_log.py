"""Rollouts on disk: what a crash leaves of them, and what a resumed run makes of that."""

from pathlib import Path

import pytest
import tinker

from cookhouse.algorithms.rollouts.rollout_log import GroupId, RolloutLog
from cookhouse.errors import InputError
from cookhouse.rl import TokensWithLogprobs, Trajectory, TrajectoryGroup, Transition


def group(version: int) -> TrajectoryGroup:
    turn = Transition(
        observation=tinker.ModelInput.from_ints([1, 2]),
        action=TokensWithLogprobs(tokens=[3], maybe_logprobs=[-0.1]),
        reward=1.0,
        episode_done=True,
    )
    trajectory = Trajectory(transitions=[turn], final_observation=tinker.ModelInput.empty())
    return TrajectoryGroup(
        trajectories_G=[trajectory], group_rewards_G=[0.0], group_metrics_G=[{}], tags=[], version=version
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rollouts"


def test_a_torn_line_is_not_written_on(folder: Path) -> None:
    """Catches a resumed run whose first group is appended to half a line: the next resume could read neither."""
    RolloutLog(folder).keep(GroupId(0, 0), group(0))
    path = folder / "000000.jsonl"
    path.write_text(path.read_text() + '{"number":1,"gro')
    log = RolloutLog(folder)
    assert set(log.restore(0).finished) == {GroupId(0, 0)}
    log.keep(GroupId(0, 1), group(0))
    assert set(RolloutLog(folder).restore(0).finished) == {GroupId(0, 0), GroupId(0, 1)}


def test_what_later_weights_sampled_is_removed(folder: Path) -> None:
    log = RolloutLog(folder)
    log.keep(GroupId(2, 0), group(1))
    log.keep(GroupId(2, 1), group(2))
    log.close_step(0, used=[], left=[GroupId(2, 0), GroupId(2, 1)], next_step=3)
    restored = log.restore(1)
    assert set(restored.finished) == {GroupId(2, 0)}
    assert len((folder / "000002.jsonl").read_text().splitlines()) == 1


def test_groups_left_by_an_earlier_step_come_back_and_used_ones_do_not(folder: Path) -> None:
    log = RolloutLog(folder)
    for number in range(3):
        log.keep(GroupId(0, number), group(0))
    log.close_step(0, used=[GroupId(0, 0)], left=[GroupId(0, 1), GroupId(0, 2)], next_step=2)
    log.close_step(1, used=[GroupId(0, 1)], left=[GroupId(0, 2)], next_step=2)
    assert log.restore(2).left == [GroupId(0, 2)]
    assert set(log.restore(2).finished) == {GroupId(0, 2)}


def test_a_file_of_something_else_is_named(folder: Path) -> None:
    log = RolloutLog(folder)
    (folder / "000000.jsonl").write_text("[]\n")
    with pytest.raises(InputError, match=r"000000\.jsonl does not hold rollouts"):
        log.restore(0)


def test_what_is_known_of_training_on_steps_that_are_taken_again_is_removed(folder: Path) -> None:
    """Catches advantages and logprobs of a run that broke off beside the rollouts of the one that went on."""
    log = RolloutLog(folder)
    for step in range(3):
        log.keep_advantages(step, {GroupId(step, 0): [[[0.5]]]})
        log.keep_logprobs(step, {GroupId(step, 0): [[[-0.5], None]]})
    (folder / "test-000002.jsonl").write_text("{}\n")
    log.restore(1)
    assert sorted(path.name for path in folder.glob("*-*")) == [
        "advantages-000000.jsonl", "test-000002.jsonl", "trained-000000.jsonl",
    ]  # fmt: skip
    assert (folder / "trained-000000.jsonl").read_text() == '{"step":0,"number":0,"logprobs":[[[-0.5],null]]}\n'
