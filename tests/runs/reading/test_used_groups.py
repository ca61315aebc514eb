"""Which groups of rollouts a step was trained on."""

import json
from pathlib import Path

import pytest

from cookhouse.algorithms.rollouts.rollout_log import GroupId, RolloutLog
from cookhouse.errors import InputError
from cookhouse.runs.reading.used_groups import used_groups


def test_they_are_those_that_the_run_recorded(tmp_path: Path) -> None:
    """Catches a step whose groups were planned for an earlier one."""
    log = RolloutLog(tmp_path / "rollouts")
    log.close_step(1, used=[GroupId(0, 2), GroupId(1, 0)], left=[GroupId(1, 1)], next_step=2)
    log.close_step(11, used=[GroupId(9, 0)], left=[], next_step=12)
    assert used_groups(tmp_path, 1) == [(0, 2), (1, 0)]
    log.restore(5)  # writes it anew
    assert used_groups(tmp_path, 1) == [(0, 2), (1, 0)]
    assert used_groups(tmp_path, 11) is None


def test_nothing_is_known_without_the_file_or_of_a_line_that_is_being_written(tmp_path: Path) -> None:
    assert used_groups(tmp_path, 0) is None
    RolloutLog(tmp_path / "rollouts")
    (tmp_path / "rollouts" / "steps.jsonl").write_text('{"step": 0, "used": [[0, 0]]')
    assert used_groups(tmp_path, 0) is None


@pytest.mark.parametrize("used", [None, 3, [3], [[1]], [["a", 1]], [[0, -1]], [[0, 1, 2]], [[0, True]]])
def test_anything_else_is_refused_in_words(used: object, tmp_path: Path) -> None:
    RolloutLog(tmp_path / "rollouts")
    (tmp_path / "rollouts" / "steps.jsonl").write_text(json.dumps({"step": 0, "used": used}) + "\n")
    with pytest.raises(InputError, match=r"steps\.jsonl does not say which groups a step was trained on"):
        used_groups(tmp_path, 0)
