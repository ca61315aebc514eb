"""Whether something can be written is tried. Catches a place that mode bits allow and the file system refuses."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from cookhouse.files import expanded_home, make_folder, unwritable


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_folder_is_as_private_as_the_one_it_lies_in(tmp_path: Path, mode: int) -> None:
    """Would catch a folder that others enter where it is moved to, and one of a user's that others were to read."""
    tmp_path.chmod(mode)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b", exist_ok=True)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")] == [mode] * 2
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")


def test_a_folder_that_refuses_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unwritable(tmp_path / "new" / "run") is None
    assert list(tmp_path.iterdir()) == []

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert unwritable(tmp_path / "new" / "run") == os.strerror(errno.EROFS)
    (tmp_path / "file").write_text("x")
    assert unwritable(tmp_path / "file") is None
    assert unwritable(tmp_path / "file" / "below") == os.strerror(errno.ENOTDIR)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("setting", "text", "meant"),
    [
        ("log_path", "~/runs/a", "HOME/runs/a"),
        ("log_path", "~", "HOME"),
        ("dataset_path", "~/a.jsonl,b.jsonl,~/c.jsonl", "HOME/a.jsonl,b.jsonl,HOME/c.jsonl"),
        ("log_path", "runs/~/a", "runs/~/a"),
        ("log_path", "~other/a", "~other/a"),
        ("system_prompt", "~/a", "~/a"),
    ],
)
def test_a_tilde_is_the_home_in_places_alone(setting: str, text: str, meant: str) -> None:
    assert expanded_home(setting, text) == meant.replace("HOME", str(Path.home()))
