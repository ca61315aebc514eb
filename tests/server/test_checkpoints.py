import time
from dataclasses import replace
from pathlib import Path

import pytest

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.checkpoints import Checkpoints, NewCheckpoint
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.store import Store

NEW = NewCheckpoint(
    model_id="s:train:0",
    kind="weights",
    name="first",
    owner="me",
    base_model="b",
    lora=LoraSpec(rank=4),
    has_optimizer=True,
    ttl_seconds=None,
    overwrite=False,
    user_metadata={},
)
PATH = "tinker://s:train:0/weights/first"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "server.db")


@pytest.fixture
def checkpoints(tmp_path: Path, store: Store) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", store)


def fill(folder: Path, text: str = "weights") -> None:
    folder.mkdir()
    (folder / "adapter").write_text(text)


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "checkpoints").iterdir())


def test_a_checkpoint_is_found_by_its_path(checkpoints: Checkpoints) -> None:
    """Would catch a row that does not lead to its folder."""
    row = checkpoints.write(NEW, fill)
    assert (row.path, row.size_bytes, row.lora_spec) == (PATH, 7, LoraSpec(rank=4))
    assert checkpoints.resolve(PATH, "me") == row
    assert (checkpoints.folder_of(row) / "adapter").read_text() == "weights"


@pytest.mark.parametrize("path", ["", PATH + "/x", "tinker://../../x", PATH[9:], PATH.replace("weights", "../weights")])
def test_other_paths_are_not(checkpoints: Checkpoints, path: str) -> None:
    """Would catch a path that is used as one in the file system."""
    checkpoints.write(NEW, fill)
    with pytest.raises(NotFoundError):
        checkpoints.resolve(path, "me")
    with pytest.raises(NotFoundError):
        checkpoints.resolve(PATH, "someone else")


def test_a_failed_write_leaves_nothing(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Would catch half a checkpoint that can be loaded, or disk space that is never given back."""

    def full_disk(folder: Path) -> None:
        fill(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(ServiceError, match="No space left on device"):
        checkpoints.write(NEW, full_disk)
    assert folders(tmp_path) == []
    with pytest.raises(NotFoundError):
        checkpoints.resolve(PATH, "me")
    checkpoints.write(NEW, fill)


def test_a_crash_in_between_is_cleaned_up(checkpoints: Checkpoints, store: Store, tmp_path: Path) -> None:
    """Would catch folders without a row that pile up, and a clean-up that takes those with one."""
    row = checkpoints.write(NEW, fill)
    fill(tmp_path / "checkpoints" / ".0123.new")
    fill(tmp_path / "checkpoints" / "0123")
    (tmp_path / "checkpoints" / "notes.txt").write_text("not ours")
    Checkpoints(tmp_path / "checkpoints", store)
    assert sorted(path.name for path in folders(tmp_path)) == sorted([row.checkpoint_id, "notes.txt"])


def test_overwriting_replaces_the_whole(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Would catch the old folder staying behind, or a name taken by accident."""
    checkpoints.write(NEW, fill)
    with pytest.raises(InputError, match="exists"):
        checkpoints.write(NEW, fill)
    row = checkpoints.write(replace(NEW, overwrite=True, user_metadata={"a": "b"}), lambda folder: fill(folder, "new"))
    assert (checkpoints.folder_of(row) / "adapter").read_text() == "new"
    assert checkpoints.resolve(PATH, "me").user_metadata == {"a": "b"}
    assert len(folders(tmp_path)) == 1


def test_time_to_live(checkpoints: Checkpoints, store: Store, tmp_path: Path) -> None:
    """Would catch an expired checkpoint that is still listed, loaded, or holds its name."""
    row = checkpoints.write(replace(NEW, ttl_seconds=3600), fill)
    assert row.expires_at == pytest.approx(time.time() + 3600, abs=60)
    checkpoints.delete_expired()
    assert len(folders(tmp_path)) == 1
    store.set_checkpoint_expiry(row.checkpoint_id, time.time() - 1)
    with pytest.raises(NotFoundError):
        checkpoints.resolve(PATH, "me")
    assert store.checkpoints("me", now=time.time()) == ([], 0)
    checkpoints.write(NEW, fill)
    checkpoints.delete_expired()
    assert len(folders(tmp_path)) == 1


def test_a_store_of_another_version_is_refused(store: Store, tmp_path: Path) -> None:
    """Would catch a newer file being written to by older code."""
    store.close()
    import sqlite3

    connection = sqlite3.connect(tmp_path / "server.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match="another version"):
        Store(tmp_path / "server.db")
    (tmp_path / "other.db").write_text("this is no database, but long enough to have a header" * 9)
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "other.db")
