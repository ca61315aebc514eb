"""Catches a database that is changed by the wrong version, and failures of the disk that reach a client as SQL."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.server.conftest import OpenStore
from tests.server.storage.checkpoints.test_checkpoints import NEW, fill

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store import database
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.store import Store

SESSION = SessionRow(session_id="s", owner="me", created_at=1.0)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("this is no database, but long enough to have a header" * 9)
    with pytest.raises(InputError, match=r"other\.db cannot be opened as a database"):
        Store(tmp_path / "other.db")


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """As another program locks a database that it copies."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_database_is_waited_for_and_then_named(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch SQL shown to a client, rows that are lost, and an engine that waits for a lock."""
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
    store = open_store(tmp_path / "server.db")
    checkpoints = Checkpoints(tmp_path / "checkpoints", store)
    row = checkpoints.write(NEW, fill)
    with locked(tmp_path / "server.db"):
        store.add_session(SESSION)
        with pytest.raises(StorageBusyError, match=r"^the service's database was locked .* for 0\.1 s; try again$"):
            store.set_checkpoint_expiry(row.checkpoint_id, 5.0)
        assert store.checkpoint(row.model_id, row.kind, row.name, "me") == row
    assert store.sessions("me", limit=9, offset=0) == [SESSION]


def test_a_lock_of_five_seconds_is_waited_for() -> None:
    """Would catch a save that fails because someone copied the database: an answer may take up to 60 s."""
    assert 5 < 2 * database._BUSY_SECONDS <= 60


def fill_up(store: Store) -> None:
    """Have SQLite find no room, as it does on a full disk."""
    with store.database.backend.readers.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_named_and_nothing_is_lost(
    tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Would catch sessions and runs that cannot be made, or are forgotten, because their rows cannot be written."""
    store = open_store(tmp_path / "server.db")
    fill_up(store)
    sessions = [
        SessionRow(session_id=str(index), owner="me", created_at=-index, user_metadata={"x": "y" * 1000})
        for index in range(20)
    ]
    for session in sessions:
        store.add_session(session)
    with pytest.raises(StorageError, match="the disk is full; free space") as caught:
        store.flush()
    assert "INSERT" not in str(caught.value)
    assert store.sessions("me", limit=99, offset=0) == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with store.database.backend.readers.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    assert store.sessions("me", limit=99, offset=0) == sessions


def damage_pages(file: Path, name: str) -> None:
    """Overwrite a page of a table or an index, as a failing disk does."""
    with closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as data:
        data.seek((page - 1) * size)
        data.write(b"\xff" * size)


def new_store(file: Path) -> None:
    store = Store(file)
    store.add_session(SESSION)
    store.flush()
    store.close()


def test_damaged_pages_are_named(tmp_path: Path) -> None:
    """Would catch SQL shown to a client, and a server that says it is well while its lists fail."""
    file = tmp_path / "server.db"
    new_store(file)
    with closing(Store(file)) as store:
        assert store.damage() is None
    damage_pages(file, "sessions")
    with closing(Store(file)) as store:
        with pytest.raises(StorageError, match=r"^the service's database is damaged; tell its operator") as told:
            store.sessions("me", limit=9, offset=0)
        assert store.damage() == str(told.value)
        assert store.checkpoint_ids() == set()


@pytest.mark.parametrize("change", ["user_metadata = '{'", "display_name = CAST(x'ff' AS TEXT)"])
def test_a_damaged_text_is_named(tmp_path: Path, change: str) -> None:
    file = tmp_path / "server.db"
    new_store(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"UPDATE sessions SET {change}")
    with closing(Store(file)) as store, pytest.raises(StorageError, match="database is damaged"):
        store.sessions("me", limit=9, offset=0)
