"""Catches a backup that lacks what its database names, changes later, or can be had only of a stopped server."""

import errno
import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW

from cookhouse.errors import InputError, ServiceError
from cookhouse.server.storage.backup import backup
from cookhouse.server.storage.backup.backup import back_up, copy_named
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store import sqlite
from cookhouse.server.storage.store.rows import CheckpointRow
from cookhouse.server.storage.store.state_dir import lock_state_dir
from cookhouse.server.storage.store.store import Store


class State:
    """A state folder in use, whose checkpoints hold their names."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        self.checkpoints = Checkpoints(folder / "checkpoints", store)

    def save(self, name: str, *, overwrite: bool = False) -> CheckpointRow:
        def write(folder: Path) -> None:
            folder.mkdir()
            (folder / "adapter").write_text(name)

        return self.checkpoints.write(replace(NEW, name=name, overwrite=overwrite), write)


@pytest.fixture
def state(tmp_path: Path, open_store: OpenStore) -> State:
    folder = tmp_path / "state"
    folder.mkdir()
    return State(folder, open_store(folder / "server.db"))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_PAUSE_SECONDS", 0.0)


def contents(folder: Path, open_store: OpenStore) -> dict[str, str]:
    """Of every checkpoint that a state folder knows, by path."""
    store = open_store(folder / "server.db")
    checkpoints = Checkpoints(folder / "checkpoints", store)
    return {row.path: (checkpoints.folder_of(row) / "adapter").read_text() for row in store.every_checkpoint()}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def unheard(_: str) -> None:
    pass


def test_a_state_folder_in_use(state: State, tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch a copy of the file alone: what was written last is still in its write-ahead log."""
    rows = [state.save("first"), state.save("second")]
    (state.folder / "api-key").write_text("tml-key\n")
    (state.folder / "tenant-salt").write_bytes(b"salt")
    (state.folder / "server.log").write_text("said")
    (state.folder / "checkpoints" / "stray").mkdir()
    with lock_state_dir(state.folder):
        assert back_up(state.folder, tmp_path / "copies" / "copy", say=unheard) == []
    copy = tmp_path / "copies" / "copy"
    assert files(copy) == sorted(
        ["api-key", "server.db", "tenant-salt", *(f"checkpoints/{row.checkpoint_id}/adapter" for row in rows)]
    )
    assert contents(copy, open_store) == {rows[0].path: "first", rows[1].path: "second"}
    assert list((tmp_path / "copies").iterdir()) == [copy], "a temporary folder is left"


def test_nobody_else_can_read_it(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_links(monkeypatch)
    state.save("first")
    (state.folder / "api-key").write_text("tml-key\n")
    copy = tmp_path / "copy"
    back_up(state.folder, copy, say=unheard)
    modes = {path.stat().st_mode & 0o777 for path in copy.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (copy, *copy.rglob("*")) if path.is_dir()} == {0o700}


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "hardlink_to", refuse)


@pytest.mark.parametrize("is_other_disk", [False, True])
def test_what_changes_later_leaves_it_alone(
    state: State, tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, *, is_other_disk: bool
) -> None:
    """Would catch a folder that is linked, and a file that is not copied where it cannot be linked."""
    if is_other_disk:
        refuse_links(monkeypatch)
    (state.folder / "api-key").write_text("tml-key\n")
    row = state.save("first")
    linked = state.checkpoints.folder_of(row) / "adapter"
    back_up(state.folder, tmp_path / "copy", say=unheard)
    assert linked.stat().st_nlink == (1 if is_other_disk else 2)
    state.checkpoints.delete(row)
    state.save("later")
    (state.folder / "api-key").write_text("other\n")
    assert contents(tmp_path / "copy", open_store) == {row.path: "first"}
    assert (tmp_path / "copy" / "api-key").read_text() == "tml-key\n"


def test_what_goes_meanwhile_is_left_out(
    state: State, tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a database that names a checkpoint which was deleted before it could be copied."""
    kept, going = state.save("kept"), state.save("going")

    def copy_late(source: Path, target: Path) -> bool:
        if source.name == going.checkpoint_id:
            state.checkpoints.delete(going)
            state.save("new")
        return copy_named(source, target)

    monkeypatch.setattr(backup, "copy_named", copy_late)
    assert back_up(state.folder, tmp_path / "copy", say=unheard) == []
    assert contents(tmp_path / "copy", open_store) == {kept.path: "kept", kept.path.replace("kept", "new"): "new"}


def test_what_an_earlier_try_copied_and_no_row_names_is_deleted(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch weights that their owner has deleted, kept in a backup for good."""
    rows = [state.save("first"), state.save("second")]
    tried: list[str] = []

    def copy_and_delete_both(source: Path, target: Path) -> bool:
        tried.append(source.name)
        if len(tried) == 2:
            for row in rows:
                state.checkpoints.delete(row)
        return copy_named(source, target)

    monkeypatch.setattr(backup, "copy_named", copy_and_delete_both)
    assert back_up(state.folder, tmp_path / "copy", say=unheard) == []
    assert len(tried) == 2
    assert files(tmp_path / "copy") == ["server.db"]


def test_what_was_lost_before_is_told(state: State, tmp_path: Path) -> None:
    """Would catch a backup that a single lost folder makes impossible."""
    lost, _ = state.save("lost"), state.save("kept")
    state.checkpoints.folder_of(lost).rename(tmp_path / "elsewhere")
    assert back_up(state.folder, tmp_path / "copy", say=unheard) == [f"checkpoints/{lost.checkpoint_id}"]
    assert len(files(tmp_path / "copy")) == 2


def test_tries_are_bounded(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def copy_late(source: Path, target: Path) -> bool:
        nonlocal count
        count += 1
        state.save("rolling", overwrite=True)
        return copy_named(source, target)

    state.save("rolling")
    monkeypatch.setattr(backup, "copy_named", copy_late)
    with pytest.raises(ServiceError, match="went faster than they could be copied, 20 times in a row"):
        back_up(state.folder, tmp_path / "copy", say=unheard)
    assert count == 20
    assert [path.name for path in tmp_path.iterdir()] == ["state"], "half a backup is left"


def test_the_database_is_that_of_one_moment(
    state: State, tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a copy that begins anew at each write of its server, or mixes before and after."""
    monkeypatch.setattr(sqlite, "_COPY_PAGES", 1)
    monkeypatch.setattr(backup, "_SAY_SECONDS", 0.0)
    row, said = state.save("first"), []

    def write(text: str) -> None:
        said.append(text)
        state.store.set_checkpoint_expiry(row.checkpoint_id, 1.0 + len(said))

    assert back_up(state.folder, tmp_path / "copy", say=write) == []
    pages = [text for text in said if "pages" in text]
    assert len(pages) == len(set(pages)) > 5
    assert said[-1] == "copying: 0 of 1 files and folders"
    kept = open_store(tmp_path / "copy" / "server.db").every_checkpoint()
    assert [each.expires_at for each in kept] == [None]


def test_folders_that_are_not_taken(state: State, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for folder, words in (
        (tmp_path / "full", "exists and is not an empty folder; name a new one"),
        (tmp_path / "full" / "file", "exists and is not an empty folder; name a new one"),
        (state.folder / "copy", "lies within the state folder; name a folder elsewhere"),
        (tmp_path / "full" / "file" / "copy", "cannot be made: "),
    ):
        with pytest.raises(InputError, match=words):
            back_up(state.folder, folder, say=unheard)
    with pytest.raises(InputError, match=r"is not the state folder of a server: it has no server.db; pass --state-dir"):
        back_up(tmp_path / "full", tmp_path / "copy", say=unheard)
    assert files(tmp_path / "full") == ["file"]
    (tmp_path / "empty").mkdir()
    back_up(state.folder, tmp_path / "empty", say=unheard)
    assert files(tmp_path / "empty") == ["server.db"]


def test_a_full_disk_leaves_nothing(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save("first")

    def fail(_: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(Path, "hardlink_to", lambda target, _: fail(_, target))
    with pytest.raises(InputError, match=r"cannot be made: No space left on device: .*adapter; free space"):
        back_up(state.folder, tmp_path / "copy", say=unheard)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_damaged_database_is_not_copied_unsaid(state: State, tmp_path: Path) -> None:
    """Would catch a backup that cannot be restored, which one hears of when it is needed."""
    for index in range(50):
        state.save(f"checkpoint-{index}")
    state.store.close()
    file = state.folder / "server.db"
    content = bytearray(file.read_bytes())
    content[8192:-4096] = os.urandom(len(content) - 12288)
    file.write_bytes(content)
    with pytest.raises((ServiceError, InputError), match="cannot be"):
        back_up(state.folder, tmp_path / "copy", say=unheard)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_server_that_writes_all_the_time(state: State, tmp_path: Path, open_store: OpenStore) -> None:
    """Catches a backup that blocks its server, or that names what it lacks, whatever falls together."""
    stopped = threading.Event()
    failures: list[Exception] = []

    def save_and_delete() -> None:
        try:
            for index in range(10_000):
                if stopped.is_set():
                    return
                row = state.save(f"checkpoint-{index}")
                if index % 2:
                    state.checkpoints.delete(row)
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=save_and_delete)
    writer.start()
    try:
        for number in range(5):
            copy = tmp_path / f"copy-{number}"
            assert back_up(state.folder, copy, say=unheard) == []
            assert all(path.endswith(text) for path, text in contents(copy, open_store).items())
    finally:
        stopped.set()
        writer.join()
    assert not failures


def test_a_copy_is_no_longer_written_ahead(state: State, tmp_path: Path) -> None:
    """Would catch a copy whose last rows are in a log beside it, where whoever copies it on may miss them."""
    row = state.save("first")
    back_up(state.folder, tmp_path / "copy", say=unheard)
    (tmp_path / "copy" / "server.db").rename(tmp_path / "alone.db")
    with closing(sqlite3.connect(tmp_path / "alone.db")) as connection:
        assert connection.execute("SELECT checkpoint_id FROM checkpoints").fetchall() == [(row.checkpoint_id,)]


def test_a_folder_that_goes_while_it_is_copied_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch half a checkpoint, taken for whole by the next try."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("first", "second"):
        (source / name).touch()
    link = Path.hardlink_to

    def link_and_lose(path: Path, existing: Path) -> None:
        link(path, existing)
        source.rename(tmp_path / "deleted")

    monkeypatch.setattr(Path, "hardlink_to", link_and_lose)
    assert not copy_named(source, target)
    assert not target.exists()


def test_what_has_changed_is_told(state: State, tmp_path: Path) -> None:
    """Would catch a damaged checkpoint that is noticed when there is no other copy any more."""
    damaged, _ = state.save("damaged"), state.save("whole")
    (state.checkpoints.folder_of(damaged) / "adapter").write_text("damaged!")
    said: list[str] = []
    assert back_up(state.folder, tmp_path / "copy", say=said.append) == []
    [words] = [text for text in said if not text.startswith("copying")]
    assert words.startswith(f"{state.folder}/checkpoints/{damaged.checkpoint_id} is damaged, and so is its copy: ")
