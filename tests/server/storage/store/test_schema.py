"""Catches a database that is changed by the wrong version, or whose rows an upgrade loses."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.server.conftest import Cluster, OpenStore, Place
from tests.server.storage.checkpoints.test_checkpoints import fill

from cookhouse.errors import InputError
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.state_folder import stored_checkpoints
from cookhouse.server.storage.store import database
from cookhouse.server.storage.store.database import is_outdated
from cookhouse.server.storage.store.state_dir import lock_state_dir
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import Base

OLDER = database.schema_revisions()[:-1]
FIRST = """INSERT INTO checkpoints
    (checkpoint_id, model_id, kind, name, owner, base_model, lora, has_optimizer, size_bytes, created_at, user_metadata)
    VALUES ('0123', 's:train:0', 'weights', 'first', 'me', 'b', '{"rank": 4}', true, 7, 1.0, '{}')"""


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", "cookhouse.server.storage.store:migrations")
    return made


@contextmanager
def connected(place: Place) -> Iterator[sa.Connection]:
    """A connection of another program's, to change a database with."""
    engine = sa.create_engine(place if isinstance(place, str) else f"sqlite:///{place}")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "server.db"
    cluster: Cluster = request.getfixturevalue("postgresql")
    return cluster.new(is_empty=True)


def make_older(place: Place, revision: str = "0001") -> None:
    """A database as an older version made it, with one checkpoint."""
    with connected(place) as connection:
        made = config()
        made.attributes["connection"] = connection
        command.upgrade(made, revision)
        connection.exec_driver_sql(FIRST)


def revision_of(place: Place) -> str:
    with connected(place) as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


def test_migrations_make_the_tables_that_the_store_uses(empty_place: Place) -> None:
    """Would catch a column that the tables have and no migration makes, in one kind of database or in all."""
    Store(empty_place).close()
    with connected(empty_place) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_revisions_are_those_that_alembic_finds() -> None:
    """Would catch a file of a name that is not its revision: a database would be upgraded at every start, or never."""
    known = [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]
    assert database.schema_revisions() == list(reversed(known))


@pytest.mark.parametrize("revision", OLDER)
def test_an_older_database_is_upgraded_with_all_it_has(
    empty_place: Place, tmp_path: Path, open_store: OpenStore, revision: str
) -> None:
    """Would catch a column that only new databases have, and checkpoints that are gone, or put aside, afterwards."""
    make_older(empty_place, revision)
    (tmp_path / "checkpoints").mkdir()
    fill(tmp_path / "checkpoints" / "0123")
    checkpoints = Checkpoints(tmp_path / "checkpoints", open_store(empty_place))
    with connected(empty_place) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    kept = checkpoints.find("tinker://s:train:0/weights/first", "me")
    assert kept.row.sha256 is None
    checkpoints.verify(kept)
    assert (kept.folder / "adapter").read_text() == "weights"


@pytest.mark.parametrize("revision", OLDER)
def test_a_copy_of_the_file_is_kept_before_an_upgrade(tmp_path: Path, revision: str) -> None:
    """Would catch an upgrade with no way back to the version that made the file."""
    file = tmp_path / "server.db"
    make_older(file, revision)
    Store(file).close()
    copy = tmp_path / f"server.db.before-{database.newest_schema()}"
    assert (revision_of(file), revision_of(copy)) == (database.newest_schema(), revision)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT name FROM checkpoints").fetchall() == [("first",)]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {file.name, copy.name}


def test_a_file_that_cannot_be_copied_is_left_as_it_is(tmp_path: Path) -> None:
    """Would catch an upgrade without the copy that it promises."""
    file = tmp_path / "server.db"
    make_older(file)
    (tmp_path / f"server.db.before-{database.newest_schema()}").mkdir()
    with pytest.raises(
        InputError, match=rf"no copy could be written to .*before-{database.newest_schema()} before its"
    ):
        Store(file)
    assert revision_of(file) == "0001"


def test_an_upgrade_without_a_copy_is_told(
    empty_place: Place, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    make_older(empty_place)
    open_store(empty_place)
    assert ("a way back is a copy that pg_dump made before" in caplog.text) == isinstance(empty_place, str)


def test_a_database_that_a_server_of_the_older_version_uses_is_left_alone(tmp_path: Path) -> None:
    """Would catch a listing that migrates the database under a running server."""
    file = tmp_path / "server.db"
    make_older(file)
    with lock_state_dir(tmp_path), pytest.raises(InputError, match="in use by another server"):
        stored_checkpoints(tmp_path)
    assert is_outdated(file)
    assert [kept.row.name for kept in stored_checkpoints(tmp_path)] == ["first"]
    assert not is_outdated(file)


def test_a_failed_migration_changes_nothing(empty_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch half a schema, which no version could open."""
    make_older(empty_place)
    upgrade = database.upgrade_schema

    def upgrade_and_fail(connection: sa.Connection) -> None:
        upgrade(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "upgrade_schema", upgrade_and_fail)
    with pytest.raises(KeyboardInterrupt):
        Store(empty_place)
    monkeypatch.undo()
    with connected(empty_place) as connection:
        columns = [column["name"] for column in sa.inspect(connection).get_columns("checkpoints")]
    assert revision_of(empty_place) == "0001"
    assert "sha256" not in columns
    Store(empty_place).close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "made by a newer version of cookhouse"),
        ("DROP TABLE alembic_version", "another program's database"),
    ],
)
def test_a_database_of_others_is_refused(place: Place, change: str, problem: str) -> None:
    """Would catch a database of a newer version, or of another program, being written to."""
    Store(place).close()
    with connected(place) as connection:
        connection.exec_driver_sql(change)
    before = place.read_bytes() if isinstance(place, Path) else b""
    with pytest.raises(InputError, match=problem):
        Store(place)
    assert (place.read_bytes() if isinstance(place, Path) else b"") == before
