"""Catches checkpoints in a blob store that are lost, half deleted, mixed up between servers, or said to be deleted.

A store that is away, and a process that is killed, is `Bucket`.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.blobs.test_stores import s3
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW, PATH, fill

from cookhouse.blobs import FsspecBlobStore, LocalBlobStore
from cookhouse.blobs.store import Content
from cookhouse.errors import InputError, ServiceError
from cookhouse.server.refusals import LeaseLostError, NotFoundError, StorageBusyError
from cookhouse.server.storage.checkpoints import blob_files
from cookhouse.server.storage.checkpoints.blob_files import files_name
from cookhouse.server.storage.checkpoints.checkpoint import NewCheckpoint, StoredCheckpoint
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.external_weights import ExternalWeights
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.store.failures import unreachable
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.store import Store

__all__ = ["s3"]


class KilledError(BaseException):
    """The process ends here."""


class Bucket(LocalBlobStore):
    """A blob store that is away when told to, and a process that is killed before one of its changes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_away = False
        self.kill_at: int | None = None
        self.num_steps = 0

    def step(self) -> None:
        if self.is_away:
            raise ServiceError("Connection refused")
        if self.kill_at is not None and self.num_steps >= self.kill_at:
            raise KilledError
        self.num_steps += 1

    def _write(self, key: str, content: Content) -> None:
        self.step()
        super()._write(key, content)

    def _remove(self, key: str) -> None:
        self.step()
        super()._remove(key)

    def _has(self, key: str) -> bool:
        if self.is_away:
            raise ServiceError("Connection refused")
        return super()._has(key)


class Servers:
    """Of one database and one bucket."""

    def __init__(self, folder: Path, store: Store, bucket: Bucket) -> None:
        self.folder, self.store, self.bucket = folder, store, bucket

    def start(self, name: str = "a", *, is_shared: bool = False) -> Checkpoints:
        """A server, over the state folder of that name."""
        remote = RemoteCheckpoints("file:///bucket", self.folder / name / "checkpoints-cache", self.store)
        return Checkpoints(self.folder / name / "checkpoints", self.store, is_shared=is_shared, remote=remote)

    def blobs(self) -> list[str]:
        """All keys but that of the owner, and sums that belong to none."""
        every = [path.relative_to(self.folder / "bucket") for path in (self.folder / "bucket").rglob("*")]
        files = {path.as_posix() for path in every if (self.folder / "bucket" / path).is_file()}
        return sorted(name for name in files - {"owner"} if name.removesuffix(".sha256") not in files - {name})

    def expected(self) -> list[str]:
        """The keys that rows name."""
        rows = self.store.every_checkpoint()
        return sorted(f"files/{files_name(row)}/{name}" for row in rows for name in row.sha256 or {})

    def copies(self, name: str = "a") -> list[str]:
        return sorted(path.name for path in (self.folder / name / "checkpoints-cache").iterdir())


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    bucket = Bucket(tmp_path / "bucket")
    monkeypatch.setattr(blob_files, "open_blobs", lambda _url: bucket)
    return bucket


@pytest.fixture
def servers(tmp_path: Path, open_store: OpenStore, bucket: Bucket) -> Servers:
    store = open_store(tmp_path / "server.db")
    store.clock.over = time.time  # type: ignore[method-assign]  # not after some minutes of grace
    return Servers(tmp_path, store, bucket)


def text_of(checkpoints: Checkpoints, row: CheckpointRow) -> str:
    kept = StoredCheckpoint(row=row, folder=checkpoints.folder_of(row))
    checkpoints.verify(kept)
    return (kept.folder / "adapter").read_text()


def written(checkpoints: Checkpoints, text: str = "weights") -> Path:
    folder = checkpoints.new_folder()
    fill(folder, text)
    return folder


def make_old(folder: Path) -> None:
    long_ago = time.time() - 3700
    os.utime(folder, (long_ago, long_ago))


@pytest.mark.parametrize("scheme", ["file", "memory", "s3"])
def test_what_one_server_saves_another_loads(
    tmp_path: Path,
    open_store: OpenStore,
    scheme: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Would catch files that only the server that saved them has: these two have no folder in common."""
    url = {"file": f"file://{tmp_path}/bucket", "memory": f"memory://{uuid.uuid4().hex}", "s3": "s3://bucket/here"}
    if scheme == "s3":
        monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3"))
    store = open_store(tmp_path / "server.db")
    first, second = (
        Checkpoints(
            tmp_path / name / "checkpoints",
            store,
            remote=RemoteCheckpoints(url[scheme], tmp_path / name / "checkpoints-cache", store),
        )
        for name in "ab"
    )
    row = first.write(NEW, fill)
    copied = second.copy(second.resolve(PATH, "me"), model_id="s:train:1", owner="me", ttl_seconds=None)
    assert text_of(second, second.find(PATH, "me").row) == "weights"
    second.delete(row)
    with pytest.raises(NotFoundError):
        first.resolve(PATH, "me")
    assert text_of(first, copied) == "weights"
    assert list((tmp_path / "a" / "checkpoints").iterdir()) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_lost_machine_loses_no_checkpoint(servers: Servers) -> None:
    row = servers.start("a").write(NEW, fill)
    assert text_of(servers.start("new"), row) == "weights"


Do = Callable[[Checkpoints], object]
REPLACE = replace(NEW, overwrite=True)


@pytest.mark.parametrize("what", ["save", "overwrite", "delete", "expire"])
def test_a_crash_between_any_two_steps(servers: Servers, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Would catch a checkpoint whose row or files are there alone, and blobs that nobody ever deletes."""
    bucket, store = servers.bucket, servers.store
    put, delete = store.put_checkpoint, store.delete_checkpoint_row

    def put_row(row: CheckpointRow, **options: Any) -> CheckpointRow | None:
        bucket.step()
        replaced = put(row, **options)
        bucket.step()
        return replaced

    def delete_row(checkpoint_id: str) -> None:
        bucket.step()
        delete(checkpoint_id)
        bucket.step()

    monkeypatch.setattr(store, "put_checkpoint", put_row)
    monkeypatch.setattr(store, "delete_checkpoint_row", delete_row)
    for kill_at in range(100):
        before = None if what == "save" else servers.start().write(REPLACE, lambda folder: fill(folder, "before"))
        if what == "expire" and before is not None:
            store.set_checkpoint_expiry(before.checkpoint_id, time.time() - 1)
        dying = servers.start()
        bucket.num_steps, bucket.kill_at = 0, kill_at
        is_done = True
        try:
            if what in ("save", "overwrite"):
                dying.write(REPLACE, fill)
            elif what == "expire":
                dying.sweep()
            elif before is not None:
                dying.delete(before)
        except KilledError:
            is_done = False
        bucket.kill_at = None
        again = servers.start()
        again.sweep()
        rows = store.every_checkpoint()
        assert servers.blobs() == servers.expected(), kill_at
        assert {text_of(again, row) for row in rows} <= {"weights", "before"}
        assert store.checkpoint_ids() == {row.checkpoint_id for row in rows}
        assert servers.copies() == [files_name(row) for row in rows]
        if what == "overwrite":
            assert len(rows) == 1  # the old one until the new one is there
        if is_done:
            assert len(rows) == (what in ("save", "overwrite"))
            assert kill_at > 5
            return
        for row in rows:
            again.delete(row)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("text", ["weights", "other weights"])
def test_two_servers_that_save_under_one_id(servers: Servers, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Would catch a server that was taken for dead, and overwrites or deletes what its successor saved, or is read."""
    cut_off, successor = (servers.start(name, is_shared=True) for name in "ab")
    put = servers.store.put_checkpoint

    def commit(*_: object, **__: object) -> None:
        monkeypatch.setattr(servers.store, "put_checkpoint", put)
        successor.commit(NEW, written(successor), "drawn")
        raise LeaseLostError("taken over")

    monkeypatch.setattr(servers.store, "put_checkpoint", commit)
    with pytest.raises(LeaseLostError):
        cut_off.commit(NEW, written(cut_off, text), "drawn")
    row = successor.known("drawn")
    assert row is not None
    successor.tidy(lambda: False)
    assert servers.blobs() != servers.expected()
    for one in (servers.start("a"), servers.start("c")):  # alone, they delete what the first one left
        assert text_of(one, row) == "weights"
        assert servers.blobs() == servers.expected()


def test_what_another_server_is_saving_stays(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a start that deletes files whose row is just being written."""
    saving, starting = (servers.start(name, is_shared=True) for name in "ab")
    put = servers.store.put_checkpoint

    def commit(row: CheckpointRow, **options: Any) -> CheckpointRow | None:
        starting.tidy(lambda: False)
        starting.sweep()
        saving.sweep()
        return put(row, **options)

    monkeypatch.setattr(servers.store, "put_checkpoint", commit)
    row = saving.write(NEW, fill)
    assert text_of(starting, row) == "weights"


def test_no_save_while_the_store_is_away(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a row without files, and an address of the service's that a client is told."""
    checkpoints = servers.start()
    servers.bucket.is_away = True
    with pytest.raises(StorageBusyError, match=f"{PATH} could not be written: the service's object storage is away"):
        checkpoints.write(NEW, fill)
    assert "Connection refused" in caplog.text
    servers.bucket.is_away = False
    assert servers.copies() == []
    assert servers.store.checkpoint_ids() == set()
    servers.start()
    assert servers.blobs() == []
    assert text_of(checkpoints, checkpoints.write(NEW, fill)) == "weights"


def test_no_load_while_the_store_is_away(servers: Servers) -> None:
    """Would catch a checkpoint that is said to be deleted or damaged because a network fails."""
    row = servers.start("a").write(NEW, fill)
    checkpoints = servers.start("b")
    servers.bucket.is_away = True
    with pytest.raises(StorageBusyError, match=f"{PATH} cannot be read now: .* is away; try again"):
        text_of(checkpoints, row)
    assert servers.copies("b") == []
    servers.bucket.is_away = False
    assert text_of(checkpoints, row) == "weights"
    servers.bucket.is_away = True
    assert text_of(checkpoints, row) == "weights"  # of its copy


def test_no_deletion_while_the_store_is_away(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a deletion that was refused, and hides the checkpoint all the same."""
    checkpoints = servers.start()
    row = checkpoints.write(NEW, fill)
    servers.bucket.is_away = True
    with pytest.raises(StorageBusyError, match=f"{PATH} could not be deleted: .* try again"):
        checkpoints.delete(row)
    servers.store.set_checkpoint_expiry(row.checkpoint_id, time.time() - 1)
    checkpoints.sweep()
    assert "wait to be deleted" in caplog.text
    servers.bucket.is_away = False
    assert text_of(servers.start("b"), row) == "weights"
    checkpoints.sweep()
    assert servers.blobs() == []


def test_no_deletion_while_the_database_is_away(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = servers.start()
    row = checkpoints.write(NEW, fill)

    def away(_: str) -> None:
        raise unreachable("nobody answers")

    with monkeypatch.context() as patch:
        patch.setattr(servers.store, "delete_checkpoint_row", away)
        with pytest.raises(StorageBusyError, match="cannot be reached"):
            checkpoints.delete(row)
        checkpoints.sweep()
    assert checkpoints.resolve(PATH, "me") == row
    assert text_of(servers.start("b"), row) == "weights"
    assert servers.blobs() == servers.expected()


def test_another_server_finishes_a_deletion(servers: Servers) -> None:
    """Would catch files that stay for good because servers are never alone."""
    first, other = (servers.start(name, is_shared=True) for name in "ab")
    row = first.write(NEW, fill)
    assert text_of(other, row) == "weights"
    servers.bucket.num_steps, servers.bucket.kill_at = 0, 4  # the mark and the file, each with its sum
    with pytest.raises(KilledError):
        first.delete(row)
    servers.bucket.kill_at = None
    with pytest.raises(InputError, match=f"{PATH} has been deleted"):
        text_of(servers.start("c", is_shared=True), row)
    other.sweep()
    assert (servers.blobs(), servers.copies("b")) == ([], [])


@pytest.mark.parametrize("harm", ["a bit", "a bit, and its sum", "gone"])
def test_a_damaged_blob_is_told(servers: Servers, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch damage that is trained on: the row has the checksums, whatever the store has."""
    row = servers.start("a").write(NEW, fill)
    (file,) = [path for path in (servers.folder / "bucket").rglob("adapter") if path.is_file()]
    if harm == "gone":
        file.unlink()
    else:
        file.write_text("weighty")
    if harm == "a bit, and its sum":
        file.with_name("adapter.sha256").unlink()
    checkpoints = servers.start("b")
    with pytest.raises(ServiceError, match=f"{PATH} is damaged on the service's side") as caught:
        text_of(checkpoints, row)
    assert not isinstance(caught.value, StorageBusyError)
    assert str(servers.folder) not in str(caught.value)
    assert f"{PATH} is damaged: " in caplog.text
    assert servers.copies("b") == []


def test_copies_that_nobody_uses_are_dropped(servers: Servers) -> None:
    """Would catch a disk that fills with copies, and one that is dropped under a reader."""
    checkpoints = servers.start()
    row = checkpoints.write(NEW, fill)
    kept = StoredCheckpoint(row=row, folder=checkpoints.folder_of(row))
    checkpoints.sweep()
    assert servers.copies() == [kept.folder.name]
    with checkpoints.held(kept):
        make_old(kept.folder)
        checkpoints.sweep()
        assert servers.copies() == [kept.folder.name]
    checkpoints.sweep([kept.folder.as_uri()])
    assert servers.copies() == [kept.folder.name]
    checkpoints.verify(kept)
    checkpoints.sweep()
    assert servers.copies() == [kept.folder.name]  # just used
    make_old(kept.folder)
    checkpoints.sweep()
    assert servers.copies() == []
    assert text_of(checkpoints, row) == "weights"


def test_a_damaged_copy_is_fetched_again(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = servers.start()
    row = checkpoints.write(NEW, fill)
    (checkpoints.folder_of(row) / "adapter").write_text("weighty")
    assert text_of(checkpoints, row) == "weights"
    assert f"a copy of {PATH} is fetched again" in caplog.text


def test_what_another_server_deleted_is_dropped(servers: Servers) -> None:
    first, other = (servers.start(name, is_shared=True) for name in "ab")
    row = first.write(NEW, fill)
    assert text_of(other, row) == "weights"
    first.delete(row)
    other.sweep()
    assert servers.copies("b") == []


def test_a_start_drops_copies_without_rows(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch copies that are put aside as if they were the only ones, or that a lost row has told of."""
    checkpoints = servers.start()
    row = checkpoints.write(NEW, fill)
    other = checkpoints.write(replace(NEW, name="other"), fill)
    unfinished = written(checkpoints)
    servers.start("b").delete(other)
    servers.start()
    assert servers.copies() == [files_name(row)]
    assert not unfinished.exists()
    assert not (servers.folder / "a" / "checkpoints-put-aside").exists()
    assert caplog.records == []


def test_files_of_a_database_that_was_lost_stay(
    servers: Servers, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a start over an empty database that deletes every checkpoint there is, and one that is refused for
    good.
    """
    row = servers.start().write(NEW, fill)
    empty = Servers(servers.folder, open_store(servers.folder / "empty.db"), servers.bucket)
    with pytest.raises(InputError, match="takes the place of the other, which is lost, delete owner there"):
        empty.start("b")
    servers.bucket.delete("owner")
    empty.start("b")
    servers.bucket.delete("owner")
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("1 checkpoints at file:///bucket are not in the database")
    assert f"files/{files_name(row)}" in message
    assert text_of(servers.start("c"), row) == "weights"


def test_another_database_s_bucket_is_refused(servers: Servers, open_store: OpenStore) -> None:
    """Would catch two services that delete what the other is just saving, since it has no row of theirs."""
    servers.start()
    other = Servers(servers.folder, open_store(servers.folder / "other.db"), servers.bucket)
    servers.bucket.put("saving/of-the-first", b"")
    with pytest.raises(InputError, match=r"are those of another database: .*/bucket/owner says .* folder of its own"):
        other.start("b")
    assert servers.bucket.list("saving") == ["saving/of-the-first"]
    servers.start("a")


def test_checkpoints_that_lie_in_the_folder_are_served_from_there(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch a server that is given --checkpoints, and loses what it saved before."""
    folder = servers.folder / "a" / "checkpoints"
    local = Checkpoints(folder, servers.store)
    row = local.write(NEW, fill)
    again = servers.start()
    assert f"1 checkpoints (0.0 MB) lie in {folder} and stay there" in caplog.text
    assert text_of(again, row) == "weights"
    again.copy(row, model_id="s:train:1", owner="me", ttl_seconds=None)
    again.write(REPLACE, lambda folder: fill(folder, "new"))
    assert list(folder.iterdir()) == []
    assert servers.blobs() == servers.expected()
    assert len(servers.store.every_checkpoint()) == 2


def test_a_server_without_the_url_says_what_is_missing(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    row = servers.start().write(NEW, fill)
    caplog.set_level(logging.WARNING)
    local = Checkpoints(servers.folder / "a" / "checkpoints", servers.store)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "1 checkpoints have no folder" in message
    assert (
        "where they were saved by a server with --checkpoints URL, until this one is started with the same" in message
    )
    with pytest.raises(ServiceError, match="is damaged on the service's side"):
        text_of(local, row)
    assert "lies where another server has its --checkpoints" in caplog.text
    assert text_of(servers.start(), row) == "weights"


def test_another_url_than_before_is_told(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Would catch a server that finds out at the first load."""
    row = servers.start().write(NEW, fill)
    (servers.folder / "bucket").rename(servers.folder / "elsewhere")
    servers.start("b")
    (message,) = [record.getMessage() for record in caplog.records]
    assert "1 checkpoints have no folder in " in message
    assert "nor files at file:///bucket, and cannot be loaded until" in message
    assert row.checkpoint_id in message


def test_downloads_are_fetched_for_their_links(servers: Servers) -> None:
    row = servers.start("a").write(replace(NEW, kind="external_weights"), fill)
    checkpoints = servers.start("b")
    weights = ExternalWeights(checkpoints)
    links = weights.links(row)
    assert servers.copies("b") == []  # a listing of names needs no files
    _, checkpoint_id, expires_at, signature, name = links.routes["adapter"].split("/")
    assert weights.follow(checkpoint_id, int(expires_at), signature, name).read_text() == "weights"
    make_old(checkpoints.folder_of(row))
    checkpoints.sweep()
    servers.bucket.is_away = True
    with pytest.raises(StorageBusyError, match="cannot be read now"):
        weights.follow(checkpoint_id, int(expires_at), signature, name)
    servers.bucket.is_away = False
    checkpoints.delete(row)
    with pytest.raises(NotFoundError):
        weights.follow(checkpoint_id, int(expires_at), signature, name)


def test_the_same_files_of_two_saves_have_two_names(servers: Servers) -> None:
    """Would catch a checkpoint whose files go with another one."""
    checkpoints = servers.start()
    new: list[NewCheckpoint] = [replace(NEW, name=name) for name in ("one", "two")]
    rows = [checkpoints.write(one, fill) for one in new]
    checkpoints.delete(rows[0])
    assert text_of(servers.start("b"), rows[1]) == "weights"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("checkpoints", "'checkpoints' is no place for checkpoints; write s3://BUCKET/FOLDER"),
        ("ftp://host/folder", "unknown scheme of a blob store 'ftp'"),
        ("s3://", "names no bucket"),
    ],
)
def test_no_place_for_checkpoints_is_said_at_the_start(
    tmp_path: Path, open_store: OpenStore, url: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        RemoteCheckpoints(url, tmp_path / "cache", open_store(tmp_path / "server.db"))


def test_a_bucket_that_cannot_be_written_is_said_at_the_start(
    tmp_path: Path, open_store: OpenStore, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a server whose first save is what finds out."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    url = "s3://no-such-bucket/folder"
    with pytest.raises(InputError, match=f"checkpoints cannot be kept at {url}: .* bucket does not exist"):
        RemoteCheckpoints(url, tmp_path / "cache", open_store(tmp_path / "server.db"))
    assert FsspecBlobStore("s3://bucket/tried", endpoint_url=s3).list() == []
