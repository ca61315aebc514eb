"""A worker's folder on another node: nobody else's, and gone after it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cookhouse.engine.transports.ray.worker_files import OwnFolder
from cookhouse.errors import ServiceError
from tests.waiting import next_line


@pytest.fixture(autouse=True)
def _base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_each_is_of_one_worker_and_closed_to_others() -> None:
    """Would catch two workers that empty each other's folder, as one that was lost and the one in its place."""
    folders = [OwnFolder() for _ in range(3)]
    assert len({folder.path for folder in folders}) == 3
    assert all(folder.path.stat().st_mode & 0o077 == 0 for folder in folders)
    folders[0].delete()
    assert [folder.path.exists() for folder in folders] == [False, True, True]


@pytest.mark.parametrize("what", ["starts", "ends"])
def test_what_a_killed_process_left_goes_with_the_next_that(what: str, tmp_path: Path) -> None:
    """Would catch tenants' weights that stay on a node for ever: of a worker whose node was killed, and that lived on
    for a moment, until the one in its place had started.
    """
    script = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]; "
        "from cookhouse.engine.transports.ray.worker_files import OwnFolder; "
        "own = OwnFolder(); (own.path / 'weights').write_text('x'); print(own.path, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        left = Path(next_line(process).strip())
        beside, another = OwnFolder(), OwnFolder()
        another.delete()
        assert (left / "weights").exists()
        process.kill()
        process.wait()
    if what == "starts":
        after = OwnFolder()
        assert sorted(left.parent.iterdir()) == sorted([beside.path, after.path])
    else:
        beside.delete()
        assert list(left.parent.iterdir()) == []


def test_a_folder_that_somebody_put_there_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"cookhouse-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(ServiceError, match="not a folder of this user"):
        OwnFolder()
