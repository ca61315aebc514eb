"""Catches a server that changes what belongs to another, or reads what belongs to another user."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW, PATH, fill

from cookhouse.errors import InputError
from cookhouse.server.refusals import NotFoundError
from cookhouse.server.storage.checkpoints import state_folder
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.server.storage.store.store import Store


@pytest.fixture
def other(tmp_path: Path, open_store: OpenStore) -> Path:
    """The state folder of another server, with one checkpoint."""
    folder = tmp_path / "other"
    folder.mkdir()
    Checkpoints(folder / "checkpoints", open_store(folder / "server.db")).write(NEW, fill)
    return folder


@pytest.fixture
def own_checkpoints(tmp_path: Path, open_store: OpenStore) -> Callable[..., Checkpoints]:
    """Opens the checkpoints of a server that may load those of others, too."""

    def opened(*others: Path) -> Checkpoints:
        return Checkpoints(tmp_path / "checkpoints", open_store(tmp_path / "server.db"), ReadOnlyCheckpoints(others))

    return opened


def test_a_checkpoint_of_another_server_can_be_loaded_and_nothing_else(
    own_checkpoints: Callable[..., Checkpoints], other: Path
) -> None:
    checkpoints = own_checkpoints(other)
    kept = checkpoints.find_loadable(PATH, "somebody")
    assert (kept.folder / "adapter").read_text() == "weights"
    with pytest.raises(NotFoundError):  # by which it would be deleted, or given a time to live
        checkpoints.resolve(PATH, "somebody")
    with pytest.raises(NotFoundError):
        own_checkpoints().find_loadable(PATH, "somebody")


def test_what_another_server_writes_later_can_be_loaded_too(
    own_checkpoints: Callable[..., Checkpoints], other: Path, open_store: OpenStore
) -> None:
    """Catches a live run of which only the checkpoints from before are found."""
    checkpoints = own_checkpoints(other)
    later = replace(NEW, name="later")
    path = PATH.replace("first", "later")
    with pytest.raises(NotFoundError):
        checkpoints.find_loadable(path, "somebody")
    Checkpoints(other / "checkpoints", open_store(other / "server.db")).write(later, fill)
    assert checkpoints.find_loadable(path, "somebody").row.name == "later"


def test_its_own_are_found_as_ever(own_checkpoints: Callable[..., Checkpoints], other: Path) -> None:
    checkpoints = own_checkpoints(other)
    checkpoints.write(NEW, lambda folder: fill(folder, "mine"))
    (other / "server.db").unlink()
    alone = own_checkpoints()
    assert (alone.find_loadable(PATH, "me").folder / "adapter").read_text() == "mine"
    with pytest.raises(NotFoundError):
        alone.find_loadable(PATH, "somebody")


def test_folders_of_nobody_and_of_others_are_refused(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        ReadOnlyCheckpoints([tmp_path / "nothing"])
    monkeypatch.setattr("os.geteuid", lambda: other.stat().st_uid + 1)
    with pytest.raises(InputError, match="belongs to another user"):
        ReadOnlyCheckpoints([other])


def test_a_folder_that_cannot_be_written_is_read(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `unable to open database file` of a run on a mount to read from."""
    opened: list[Path] = []

    class Watched(Store):
        def __init__(self, file: Path) -> None:
            opened.append(file)
            super().__init__(file)

    monkeypatch.setattr(state_folder, "Store", Watched)
    monkeypatch.setattr(state_folder, "unwritable", lambda _: "Read-only file system")
    assert [kept.folder.parent.parent for kept in state_folder.stored_checkpoints(other)] == [other]
    assert other not in opened[0].parents
    assert not opened[0].exists()
