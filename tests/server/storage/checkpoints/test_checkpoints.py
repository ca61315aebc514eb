import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.server.conftest import OpenStore

from cookhouse.engine.contract import DamagedError, LoraSpec
from cookhouse.engine.files.new_folder import new_folder
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.refusals import DiskError, LeaseLostError, NotFoundError, StorageBusyError, StorageError
from cookhouse.server.storage.checkpoints.checkpoint import NewCheckpoint, StoredCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.failures import full, unreachable
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store

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
def store(tmp_path: Path, open_store: OpenStore) -> Store:
    return open_store(tmp_path / "server.db")


@pytest.fixture
def checkpoints(tmp_path: Path, store: Store) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", store)


def kept(row: CheckpointRow, checkpoints: Checkpoints) -> StoredCheckpoint:
    return StoredCheckpoint(row=row, folder=checkpoints.folder_of(row))


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


def test_what_has_no_row_is_put_aside(
    checkpoints: Checkpoints, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch folders that a start deletes because the database was lost, and one that says nothing of it."""
    row = checkpoints.write(NEW, fill)
    fill(tmp_path / "checkpoints" / ".0123.new")
    fill(tmp_path / "checkpoints" / "0123")
    fill(tmp_path / "checkpoints" / "mine.deleted")
    (tmp_path / "checkpoints" / "notes.txt").write_text("not ours")
    Checkpoints(tmp_path / "checkpoints", store)
    assert sorted(path.name for path in folders(tmp_path)) == sorted([row.checkpoint_id, "notes.txt"])
    aside = tmp_path / "checkpoints-put-aside"
    assert sorted(path.name for path in aside.iterdir()) == [".0123.new", "0123", "mine.deleted"]
    assert (aside / "0123" / "adapter").read_text() == "weights"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"3 files or folders in {tmp_path / 'checkpoints'} are not in the database")
    assert str(aside) in message
    assert "checkpoints import" in message
    caplog.clear()
    Checkpoints(tmp_path / "checkpoints", store)
    assert caplog.records == []


def test_what_was_never_finished_is_deleted(
    checkpoints: Checkpoints, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch disk space lost with each crash, and a name of the engine's that nobody knows here."""
    row = checkpoints.write(NEW, fill)
    with new_folder(checkpoints.folder_with_id(uuid.uuid4().hex)) as unfinished:
        (unfinished / "adapter").write_text("wei")
        Checkpoints(tmp_path / "checkpoints", store)
        assert not unfinished.exists()
        unfinished.mkdir()  # for the block to end
    checkpoints.delete(row)
    assert caplog.records == []


def test_a_lost_database_loses_no_checkpoint(
    tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch ten folders that become none, and folders that do not fit the database when it is found again."""
    store = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    rows = [checkpoints.write(replace(NEW, name=str(index)), fill) for index in range(10)]
    store.close()
    (tmp_path / "server.db").rename(tmp_path / "found")
    for _ in range(2):  # what lies aside already is not overwritten
        lost = open_store(tmp_path / "server.db")
        Checkpoints(tmp_path / "checkpoints", lost)
        lost.close()
        fill(tmp_path / "checkpoints" / rows[0].checkpoint_id, "another")
    (tmp_path / "server.db").unlink()
    (tmp_path / "found").rename(tmp_path / "server.db")
    caplog.clear()
    again = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", again)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"9 checkpoints have no folder in {tmp_path / 'checkpoints'}")
    for row in rows[1:]:
        (tmp_path / "checkpoints-put-aside" / row.checkpoint_id).rename(checkpoints.folder_of(row))
        checkpoints.verify(kept(row, checkpoints))
        assert (checkpoints.folder_of(row) / "adapter").read_text() == "weights"
    assert (tmp_path / "checkpoints-put-aside" / rows[0].checkpoint_id / "adapter").read_text() == "weights"


def test_overwriting_replaces_the_whole(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Would catch the old folder staying behind, or a name taken by accident."""
    checkpoints.write(NEW, fill)
    with pytest.raises(InputError, match="exists"):
        checkpoints.write(NEW, fill)
    row = checkpoints.write(replace(NEW, overwrite=True, user_metadata={"a": "b"}), lambda folder: fill(folder, "new"))
    assert (checkpoints.folder_of(row) / "adapter").read_text() == "new"
    assert checkpoints.resolve(PATH, "me").user_metadata == {"a": "b"}
    assert len(folders(tmp_path)) == 1


def test_time_to_live(checkpoints: Checkpoints, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch an expired checkpoint that is still listed, loaded, or holds its name."""
    monkeypatch.setattr(store.clock, "over", time.time)
    row = checkpoints.write(replace(NEW, ttl_seconds=3600), fill)
    assert row.expires_at == pytest.approx(time.time() + 3600, abs=60)
    checkpoints.sweep()
    assert len(folders(tmp_path)) == 1
    store.set_checkpoint_expiry(row.checkpoint_id, time.time() - 1)
    with pytest.raises(NotFoundError):
        checkpoints.resolve(PATH, "me")
    assert store.checkpoints("me") == ([], 0)
    checkpoints.write(NEW, fill)
    checkpoints.sweep()
    assert len(folders(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["flipped", "missing", "gone"])
def test_damage_is_the_services(
    checkpoints: Checkpoints, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a flipped bit that is trained on, a user blamed for it, and a path of the server's shown to one."""
    row = checkpoints.write(NEW, fill)
    folder = checkpoints.folder_of(row)
    file = folder / "adapter"
    if damage == "flipped":
        file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    elif damage == "missing":
        file.unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ServiceError, match="damaged on the service's side") as caught:
        checkpoints.verify(kept(row, checkpoints))
    assert row.path in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert str(folder) in caplog.text


def test_a_damaged_checkpoint_is_not_copied(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """Would catch a copy whose digests are taken of the damage, so that it can be trained on."""
    row = checkpoints.write(NEW, fill)
    (checkpoints.folder_of(row) / "adapter").write_text("weighty")
    with pytest.raises(StorageError, match=f"{PATH} is damaged"):
        checkpoints.copy(row, model_id="s:train:1", owner="me", ttl_seconds=None)
    assert folders(tmp_path) == [checkpoints.folder_of(row)]


def test_what_an_engine_says_of_a_folder_names_the_checkpoint(checkpoints: Checkpoints) -> None:
    row = checkpoints.write(NEW, fill)
    stored = kept(row, checkpoints)
    refused = checkpoints.explained(stored, InputError(f"checkpoint {stored.folder} holds NaN"))
    assert (type(refused), str(refused)) == (InputError, f"checkpoint {PATH} holds NaN")
    for error in (DamagedError(f"checkpoint {stored.folder} cannot be read"), DiskError("Input/output error")):
        damaged = checkpoints.explained(stored, error)
        assert isinstance(damaged, ServiceError)
        assert "damaged on the service's side" in str(damaged)


def test_a_checkpoint_deleted_before_it_is_loaded_is_not_damaged(checkpoints: Checkpoints) -> None:
    row = checkpoints.write(NEW, fill)
    checkpoints.delete(row)
    with pytest.raises(InputError, match=f"{PATH} has been deleted"):
        checkpoints.verify(kept(row, checkpoints))


def test_a_crash_while_deleting_is_finished_by_the_next_start(
    checkpoints: Checkpoints, store: Store, tmp_path: Path
) -> None:
    """Would catch a deleted checkpoint that comes back, or is put aside for someone to look after."""
    row = checkpoints.write(NEW, fill)
    checkpoints.folder_of(row).rename(tmp_path / "checkpoints" / f"{row.checkpoint_id}.deleted")
    Checkpoints(tmp_path / "checkpoints", store)
    assert folders(tmp_path) == []
    assert store.checkpoint_ids() == set()
    assert not (tmp_path / "checkpoints-put-aside").exists()


def written(checkpoints: Checkpoints) -> Path:
    folder = checkpoints.new_folder()
    fill(folder)
    return folder


def cut() -> StorageBusyError:
    """What a commit fails with whose answer was lost."""
    error = unreachable("it was cut")
    error.__cause__ = sa.exc.OperationalError("COMMIT", None, OSError("cut"), connection_invalidated=True)
    return error


def test_a_commit_whose_answer_was_lost_keeps_its_folder(
    checkpoints: Checkpoints, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a row whose folder the same request deletes."""
    put = store.put_checkpoint

    def commit(row: CheckpointRow, **options: Any) -> None:
        put(row, **options)
        raise cut()

    monkeypatch.setattr(store, "put_checkpoint", commit)
    with pytest.raises(StorageBusyError, match="cannot be reached"):
        checkpoints.commit(NEW, written(checkpoints), "drawn")
    row = checkpoints.known("drawn")
    assert row is not None
    checkpoints.verify(kept(row, checkpoints))
    assert [folder.name for folder in folders(tmp_path)] == ["drawn"]


def test_a_row_that_has_no_room_leaves_no_folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a full disk that saves which fail fill further."""

    def commit(*_: object, **__: object) -> None:
        raise full()

    monkeypatch.setattr(store, "put_checkpoint", commit)
    for is_shared in (False, True):
        ours = Checkpoints(tmp_path / "checkpoints", store, is_shared=is_shared)
        with pytest.raises(StorageBusyError, match="disk is full"):
            ours.commit(NEW, written(ours), "drawn")
        assert folders(tmp_path) == []


@pytest.mark.parametrize("is_fenced", [True, False])
def test_what_a_successor_has_committed_is_not_deleted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fenced: bool
) -> None:
    """Would catch a server cut off from the database that deletes the checkpoint which its successor saved instead."""
    cut_off, successor = (Checkpoints(tmp_path / "checkpoints", store, is_shared=True) for _ in range(2))
    put = store.put_checkpoint

    def commit(*_: object, **__: object) -> None:
        monkeypatch.setattr(store, "put_checkpoint", put)
        successor.commit(NEW, written(successor), "drawn")
        if is_fenced:
            monkeypatch.setattr(store, "check_fence", fence)
        raise unreachable("nobody answers")

    def fence() -> None:
        raise LeaseLostError("taken over")

    monkeypatch.setattr(store, "put_checkpoint", commit)
    with pytest.raises(StorageBusyError, match="cannot be reached"):
        cut_off.commit(NEW, written(cut_off), "drawn")
    row = successor.known("drawn")
    assert row is not None
    successor.verify(kept(row, successor))
