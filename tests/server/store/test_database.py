"""Catches a database that is changed by the wrong version, and failures of the disk that reach a client as SQL."""

import io
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from tests.server.checkpoints.test_checkpoints import NEW, fill
from tests.server.conftest import OpenStore

from cookhouse.errors import InputError
from cookhouse.server.checkpoints.checkpoints import Checkpoints
from cookhouse.server.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.store import database, schema
from cookhouse.server.store.database import is_outdated
from cookhouse.server.store.rows import SessionRow
from cookhouse.server.store.state_dir import lock_state_dir
from cookhouse.server.store.store import Store
from cookhouse.server.store.tables import Base
from cookhouse.server.store.usage import Usage

SESSION = SessionRow(session_id="s", owner="me", created_at=1.0)


def older_version(state_dir: Path, revision: str = "0001") -> Path:
    """A state folder with a database of an older version, and one checkpoint; returns the database."""
    file = state_dir / "server.db"
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", "cookhouse.server.store:migrations")
        command.upgrade(config, revision)
        row = ("0123", "s:train:0", "weights", "first", "me", "b", '{"rank": 4}', True, 7, 1.0, "{}")
        names = "checkpoint_id, model_id, kind, name, owner, base_model, lora, has_optimizer, size_bytes, created_at"
        values = ", ".join("?" * len(row))
        connection.exec_driver_sql(f"INSERT INTO checkpoints ({names}, user_metadata) VALUES ({values})", row)
    engine.dispose()
    (state_dir / "checkpoints").mkdir()
    fill(state_dir / "checkpoints" / "0123")
    return file


def schema_differences(file: Path) -> list[object]:
    with closing(sqlite3.connect(file)) as raw:
        engine = sa.create_engine("sqlite://", creator=lambda: raw)
        with engine.connect() as connection:
            return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))


def test_migrations_make_the_tables_that_the_store_uses(tmp_path: Path) -> None:
    """Would catch a column that the tables have and no migration makes."""
    Store(tmp_path / "server.db").close()
    assert schema_differences(tmp_path / "server.db") == []


def test_revisions_are_those_that_alembic_finds() -> None:
    """Would catch a file of a name that is not its revision: a database would be upgraded at every start, or never."""
    config = Config()
    config.set_main_option("script_location", "cookhouse.server.store:migrations")
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert schema.revisions() == list(reversed(known))


def postgresql_script() -> str:
    """What the migrations would have PostgreSQL do."""
    script = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": script, "target_metadata": Base.metadata}
    )
    config = Config()
    config.set_main_option("script_location", "cookhouse.server.store:migrations")
    revisions = list(ScriptDirectory.from_config(config).walk_revisions())
    with Operations.context(context):
        for revision in reversed(revisions):
            revision.module.upgrade()
    return script.getvalue()


def test_migrations_are_in_words_of_other_databases_too() -> None:
    """Would catch a PRAGMA, and a size of 32 bits, which a checkpoint of 2.1 GiB is beyond."""
    script = postgresql_script()
    assert "PRAGMA" not in script
    for column in ("size_bytes", "trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens"):
        assert f"ALTER COLUMN {column} TYPE BIGINT" in script


def test_statements_are_in_words_of_other_databases_too(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch an upsert of SQLite's own dialect."""
    store = open_store(tmp_path / "server.db")
    said: list[str] = []

    def note(_connection: object, statement: object, *_: object) -> None:
        if isinstance(statement, sa.ClauseElement):
            said.append(str(statement.compile(dialect=postgresql.dialect())))  # type: ignore[no-untyped-call]

    sa.event.listen(store.database.engine, "before_execute", note)
    store.add_session(SESSION)
    store.add_usage({("me", "s"): Usage(trained_tokens=2**40)})
    Checkpoints(tmp_path / "checkpoints", store).write(NEW, fill)
    assert store.sessions("me", limit=9, offset=0) == [SESSION]
    assert len(said) >= 5


def test_usage_adds_up(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch tokens that are lost, doubled or cut to 32 bits, and those of one session in another's row."""
    store = open_store(tmp_path / "server.db")
    for _ in range(2):
        store.add_usage({("me", "s"): Usage(trained_tokens=2**40, engine_seconds=0.5), ("you", "t"): Usage()})
    assert store.session_usage("s", "me") == Usage(trained_tokens=2**41, engine_seconds=1.0)
    assert store.session_usage("t", "you") == Usage()


@pytest.mark.parametrize("revision", schema.revisions()[:-1])
def test_an_older_database_is_upgraded_with_all_it_has(tmp_path: Path, open_store: OpenStore, revision: str) -> None:
    """Would catch a column that only new databases have, and checkpoints that are gone, or put aside, afterwards."""
    file = older_version(tmp_path, revision)
    assert is_outdated(file)
    checkpoints = Checkpoints(tmp_path / "checkpoints", open_store(file))
    assert not is_outdated(file)
    assert schema_differences(file) == []
    kept = checkpoints.find("tinker://s:train:0/weights/first", "me")
    assert kept.row.sha256 is None
    checkpoints.verify(kept)
    assert (kept.folder / "adapter").read_text() == "weights"


def test_a_database_that_a_server_of_the_older_version_uses_is_left_alone(tmp_path: Path) -> None:
    """Would catch a listing that migrates the database under a running server."""
    file = older_version(tmp_path)
    with lock_state_dir(tmp_path), pytest.raises(InputError, match="in use by another server"):
        stored_checkpoints(tmp_path)
    assert is_outdated(file)
    assert [kept.row.name for kept in stored_checkpoints(tmp_path)] == ["first"]


def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch half a schema, which no version could open."""
    file = older_version(tmp_path)
    upgrade = schema.upgrade

    def upgrade_and_fail(connection: sa.Connection) -> None:
        upgrade(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(schema, "upgrade", upgrade_and_fail)
    with pytest.raises(KeyboardInterrupt):
        Store(file)
    monkeypatch.undo()
    with closing(sqlite3.connect(file)) as connection:
        versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        columns = [column[1] for column in connection.execute("PRAGMA table_info(checkpoints)")]
    assert versions == [("0001",)]
    assert "sha256" not in columns
    Store(file).close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "made by a newer version of cookhouse"),
        ("DROP TABLE alembic_version", "another program's database"),
    ],
)
def test_a_database_of_others_is_refused(tmp_path: Path, change: str, problem: str) -> None:
    """Would catch a file of a newer version, or of another program, being written to."""
    file = tmp_path / "server.db"
    Store(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(change)
    before = file.read_bytes()
    with pytest.raises(InputError, match=problem):
        Store(file)
    assert file.read_bytes() == before


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
        assert store.checkpoint(row.model_id, row.kind, row.name, "me", now=time.time()) == row
    assert store.sessions("me", limit=9, offset=0) == [SESSION]


def test_a_lock_of_five_seconds_is_waited_for() -> None:
    """Would catch a save that fails because someone copied the database: an answer may take up to 60 s."""
    assert 5 < 2 * database._BUSY_SECONDS <= 60


def fill_up(store: Store) -> None:
    """Have SQLite find no room, as it does on a full disk."""
    with store.database.engine.connect() as connection:
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
    with store.database.engine.connect() as connection:
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


def test_recorded_rows_are_written_with_the_next_checkpoint(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch a checkpoint whose run is unknown after a crash."""
    file = tmp_path / "server.db"
    store = open_store(file)
    store.add_session(SESSION)
    Checkpoints(tmp_path / "checkpoints", store).write(NEW, fill)
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT session_id FROM sessions").fetchall() == [("s",)]


def test_a_row_that_may_have_been_written_can_be_written_again(tmp_path: Path, open_store: OpenStore) -> None:
    """Would catch one row that keeps all later ones from being written, for ever."""
    store = open_store(tmp_path / "server.db")
    for _ in range(2):
        store.add_session(SESSION)
        store.flush()
    assert store.sessions("me", limit=9, offset=0) == [SESSION]
