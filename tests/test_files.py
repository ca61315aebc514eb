"""Whether something can be written is tried. Catches a place that mode bits allow and the file system refuses."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from cookhouse.files import expanded_home, unwritable


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
