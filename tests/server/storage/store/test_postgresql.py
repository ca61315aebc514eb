"""Catches failures of PostgreSQL that reach a client as SQL, and two servers that write to one database."""

import sys
import threading
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.server.conftest import Cluster, OpenStore
from tests.server.storage.store.test_schema import connected
from tests.server.storage.store.test_store import CHECKPOINT, SESSION
from tests.waiting import wait_until

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.storage.store import database
from cookhouse.server.storage.store import postgresql as module
from cookhouse.server.storage.store.failures import is_cut
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import UsageRecord
from cookhouse.server.storage.store.usage import Usage


def test_one_server_has_the_database(
    postgresql: Cluster, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch two servers, each of which puts the other's checkpoints aside."""
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 0.05)
    url = postgresql.new()
    first = open_store(url)
    with pytest.raises(InputError, match=r"/test_\w+ cannot be opened as a database: it is in use by another server"):
        Store(url)
    first.close()
    open_store(url)


def test_a_server_that_lost_the_database_to_another_writes_no_more(
    postgresql: Cluster, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a server that comes back from a cut network, and writes beside the one that took its place."""
    monkeypatch.setattr(module, "_CLAIM_SECONDS", 0.05)
    url = postgresql.new()
    first = open_store(url)
    postgresql.cut(url)
    second = open_store(url)
    first.add_session(SESSION)
    with pytest.raises(StorageBusyError, match="locked by another program"):
        first.flush()
    second.close()
    first.flush()
    assert first.sessions("me", limit=9, offset=0) == [SESSION]


def test_connections_that_were_cut_are_made_again(postgresql: Cluster, open_store: OpenStore) -> None:
    """Would catch a database that was started again, and every request after it failing."""
    url = postgresql.new()
    store = open_store(url)
    store.add_session(SESSION)
    store.flush()
    postgresql.cut(url)
    assert store.sessions("me", limit=9, offset=0) == [SESSION]
    postgresql.cut(url)
    assert store.put_checkpoint(CHECKPOINT, overwrite=False) is None


def test_what_a_cut_connection_did_not_commit_is_kept(postgresql: Cluster, open_store: OpenStore) -> None:
    url = postgresql.new()
    store = open_store(url)
    store.add_session(SESSION)

    def write() -> None:
        with store.database.writing():
            postgresql.cut(url)

    with pytest.raises(StorageBusyError, match=r"^the service's database cannot be reached; try again$") as told:
        write()
    assert is_cut(told.value), "whether it was committed is not known"
    assert store.sessions("me", limit=9, offset=0) == [SESSION]


def test_a_database_out_of_reach_is_named(postgresql: Cluster, open_store: OpenStore) -> None:
    """Would catch SQL, an address or a password shown to a client, and a server that says it is well."""
    url = postgresql.new()
    store = open_store(url)
    with postgresql.closed_to_all(url):
        store.add_session(SESSION)
        with pytest.raises(StorageBusyError, match=r"^the service's database cannot be reached; try again$"):
            store.flush()
        with pytest.raises(StorageBusyError, match=r"^the service's database cannot be reached; try again$"):
            store.checkpoint_ids()
        assert store.damage() == "the service's database cannot be reached; try again"
    assert store.sessions("me", limit=9, offset=0) == [SESSION]
    assert store.damage() is None


def failing(code: str) -> str:
    """A trigger on new sessions, which fail with an error of that code."""
    return f"""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON sessions EXECUTE FUNCTION fail()"""


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53100", StorageBusyError, "the disk is full; free space on it"),
        ("53200", StorageBusyError, "cannot be reached; try again"),
        ("40P01", StorageBusyError, "was locked by another program for"),
        ("58030", StorageError, "cannot be used: no"),
        ("XX001", StorageError, "database is damaged; tell its operator, who has to stop the service and restore its"),
    ],
)
def test_failures_are_told_in_words(
    postgresql: Cluster, open_store: OpenStore, code: str, kind: type[StorageError], words: str
) -> None:
    """Would catch SQL shown to a client, and a request refused that would succeed a minute later."""
    url = postgresql.new()
    store = open_store(url)
    with connected(url) as connection:
        connection.exec_driver_sql(failing(code))
    store.add_session(SESSION)
    with pytest.raises(StorageError, match=words) as told:
        store.flush()
    assert type(told.value) is kind
    assert "INSERT" not in str(told.value)
    with connected(url) as connection:
        connection.exec_driver_sql("DROP TRIGGER fail ON sessions")
    assert store.sessions("me", limit=9, offset=0) == [SESSION]


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@here/x", "postgresql+asyncpg://me:secret@here/x", "server.db", "secret@//:x:"]
)
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"has to be postgresql://USER:PASSWORD@HOST/NAME") as told:
        Store(url)
    assert "secret" not in str(told.value)


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"postgresql://me:\*\*\*@/x cannot be opened as a database: ") as told:
        Store(f"postgresql://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(told.value)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=r"needs the package psycopg, which is not installed: .*install.*postgres"):
        Store("postgresql://me@here/x")


def test_what_is_to_be_quick_does_not_wait(postgresql: Cluster) -> None:
    """Would catch a beat that waits for a lock as long as a request may: its server is taken for dead meanwhile."""
    store = Store(postgresql.new(), is_shared=True)
    statement = sa.text("LOCK TABLE servers IN EXCLUSIVE MODE")
    with closing(store):
        with store.database.writing() as session:
            session.execute(statement)
            with pytest.raises(StorageBusyError), store.database.quick() as connection:
                connection.execute(statement)
        with pytest.raises(StorageBusyError), store.database.quick() as connection:
            connection.execute(sa.text("SELECT pg_sleep(20)"))


def test_a_connection_in_use_when_the_database_closes_is_closed_later(postgresql: Cluster) -> None:
    """Catches a connection that nobody closes any more, of a thread that a closing server does not wait for."""
    store = Store(postgresql.new())
    with store.database.reading() as session:
        connection = session.connection().connection.dbapi_connection
        store.close()
    assert connection is not None
    assert connection.closed


def test_a_server_takes_so_many_connections(
    postgresql: Cluster, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch listings that take all connections which a database has for all of its servers."""
    monkeypatch.setattr(module, "_NUM_READERS", 1)
    monkeypatch.setattr(database, "_BUSY_SECONDS", 0.1)
    store = open_store(postgresql.new())
    with ExitStack() as readers:
        for _ in range(2):
            readers.enter_context(store.database.reading()).connection()
        with pytest.raises(StorageBusyError, match="connections to its database are in use; try again"):
            store.checkpoint_totals()
    assert store.checkpoint_totals() == {}


def test_two_servers_write_the_usage_of_a_session_at_once(postgresql: Cluster) -> None:
    """Would catch counts that are lost, since another server has just written the first of the same session."""
    url = postgresql.new()
    with closing(Store(url, is_shared=True)) as first, closing(Store(url, is_shared=True)) as second:
        used = {("me", "s"): Usage(trained_tokens=3), ("me", "t"): Usage(trained_tokens=1)}
        writing = threading.Thread(target=second.add_usage, args=[used])
        with first.database.writing() as session:
            session.add(UsageRecord(owner="me", session_id="s", **asdict(Usage(trained_tokens=4))))
            session.flush()
            writing.start()
            wait_until(lambda: _num_waiting(url) > 0)
        writing.join(60)
        assert first.usage_by_owner() == {"me": Usage(trained_tokens=8)}


def _num_waiting(url: str) -> int:
    with connected(url) as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())
