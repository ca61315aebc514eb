"""Rolling checkpoints on the real engine: a run that is killed again and again gives the losses of one that is not."""

import random
import signal

import pytest
from tests.e2e.conftest import SETTINGS, STEPS, Cookhouse, losses
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.long

# 24 steps leave little room for 20 kills, so that it is killed where it has gone on by one step or two.
ROLLING = ("run", "chat_sl", *SETTINGS, "rolling_save_every=1", "eval_every=0")


def test_killed_at_many_points_it_gives_the_same_losses(cookhouse: Cookhouse) -> None:
    whole = cookhouse.run(*ROLLING, "log_path=whole")
    assert whole.returncode == 0, whole.stderr
    chance = random.Random(3)
    points = sorted(chance.sample(range(1, STEPS - 1), 20))
    for point in points:
        process = cookhouse.start(*ROLLING, "log_path=killed", "behavior_if_log_dir_exists=resume")
        wait_until(lambda: len(losses(cookhouse.folder / "killed")) >= point or process.poll() is not None)  # noqa: B023
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECONDS)
        wait_until(lambda: not cookhouse.servers())
    done = cookhouse.run("run", "chat_sl", "log_path=killed", "behavior_if_log_dir_exists=resume")
    assert done.returncode == 0, done.stderr
    assert losses(cookhouse.folder / "killed") == losses(cookhouse.folder / "whole")
    listed = cookhouse.run("checkpoints", "list", "killed")
    assert listed.returncode == 0, listed.stderr
