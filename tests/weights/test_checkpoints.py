import errno
import os
from pathlib import Path

import pytest

from cookhouse.errors import InputError
from cookhouse.weights.checkpoints import Checkpoint, CheckpointFile


def checkpoint(step: int, state_path: str | None = "tinker://r/weights/s") -> Checkpoint:
    return Checkpoint(
        name=f"{step:06d}", epoch=0, batch=step, step=step, final=False, state_path=state_path, sampler_path=None
    )


def test_last_state_is_the_newest_that_can_be_continued(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "checkpoints.jsonl")
    assert file.last_state() is None
    for each in (checkpoint(2), checkpoint(4), checkpoint(6, state_path=None)):
        file.append(each)
    assert file.read() == [checkpoint(2), checkpoint(4), checkpoint(6, state_path=None)]
    assert file.last_state() == checkpoint(4)


@pytest.mark.parametrize("torn", ['{"name": "0000', '{"name": "000004", "epoch": 0}', "\x00\x00", "x" * 9000])
def test_torn_last_line_is_left_out_and_then_replaced(tmp_path: Path, torn: str) -> None:
    # Catches an append after a crash that glues two lines together, which loses the new one too.
    path = tmp_path / "checkpoints.jsonl"
    file = CheckpointFile(path)
    file.append(checkpoint(2))
    path.write_text(path.read_text() + torn)
    assert file.read() == [checkpoint(2)]
    file.append(checkpoint(4))
    assert file.read() == [checkpoint(2), checkpoint(4)]


def test_line_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    path.write_text('{"name": 1}\n')
    with pytest.raises(InputError, match=r"checkpoints\.jsonl, line 1, is not a checkpoint"):
        CheckpointFile(path).read()


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    file = CheckpointFile(path)
    file.append(checkpoint(2))
    path.write_text(path.read_text().replace("{", '{"loss": 1.5, ', 1))
    assert file.read() == [checkpoint(2)]


def test_full_disk_is_one_clear_error_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoints.jsonl"
    file = CheckpointFile(path)
    file.append(checkpoint(2))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="no space left to write"):
        file.append(checkpoint(4))
    assert path.read_text().count("\n") == 1


def test_a_checkpoint_that_is_gone_leaves_no_line(tmp_path: Path) -> None:
    """Catches forgetting that takes the others of the run with it, or a torn line for a whole one."""
    path = tmp_path / "checkpoints.jsonl"
    file = CheckpointFile(path)
    saved = [checkpoint(step, f"tinker://r/weights/{step}") for step in (2, 4, 6)]
    for each in saved:
        file.append(each)
    path.write_text(path.read_text() + '{"name": "0000')
    file.forget(str(saved[1].state_path))
    assert file.read() == [saved[0], saved[2]]


def test_lines_of_before_there_were_rolling_checkpoints_are_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    file = CheckpointFile(path)
    file.append(checkpoint(2))
    path.write_text(path.read_text().replace(', "rolling": false', ""))
    assert file.read() == [checkpoint(2)]
