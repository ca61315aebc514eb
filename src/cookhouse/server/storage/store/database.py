"""The database of a store: its schema, its transactions, and its failures in words of ours."""

import contextlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.store.failures import exhausted, locked
from cookhouse.server.storage.store.postgresql import NOW, QUICK_SECONDS, Postgresql
from cookhouse.server.storage.store.sqlite import Sqlite

_log = logging.getLogger(__name__)
_VERSIONS = Path(__file__).parent / "migrations" / "versions"
_BUSY_SECONDS = 25
"""How long a transaction waits for those before it, and again for another program's lock. The SDK waits 60 s."""
_LISTING_SECONDS = 1.0
"""The same where a list waits for rows to be written that it would have: without them it is old, and not wrong."""


def schema_revision(connection: sa.Connection) -> str | None:
    """Revision of a database; None if it is new.

    Raises:
        InputError: a newer version of cookhouse made it, or another program.
    """
    names = sa.inspect(connection).get_table_names()
    versions = sa.table("alembic_version", sa.column("version_num"))
    found = connection.execute(sa.select(versions.c.version_num)).scalar() if versions.name in names else None
    if found is None and names:
        raise InputError("it is another program's database; choose another database or state folder")
    if found is not None and found not in schema_revisions():
        raise InputError(
            f"it was made by a newer version of cookhouse (schema {found}, this one has {newest_schema()}); "
            "use that version, or choose another database or state folder"
        )
    return None if found is None else str(found)


def schema_revisions() -> list[str]:
    """Revisions of this version, oldest first. From the names of their files: loading Alembic takes long."""
    return sorted(file.name.split("_")[0] for file in _VERSIONS.glob("[0-9]*.py"))


def newest_schema() -> str:
    return schema_revisions()[-1]


def upgrade_schema(connection: sa.Connection) -> None:
    """Bring a database to the schema of this version, in the transaction that the connection is in.

    A change of the tables is a new file in `migrations/versions`, whose `down_revision` is the last one before.
    """
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "cookhouse.server.storage.store:migrations")
    command.upgrade(config, "head")


class Backend(Protocol):
    name: str
    """For the operator; no password."""
    readers: sa.Engine
    writers: sa.Engine
    """Asked for one connection at a time."""

    def close(self) -> None:
        """Let go of all connections."""
        ...

    def claim(self) -> None:
        """Keep other servers from the database, as long as this process lives.

        Raises:
            InputError: another server has it.
        """
        ...

    def lock_starts(self, connection: sa.Connection) -> None:
        """Have no other server change the tables, or the rows of the service, until the end of the transaction."""
        ...

    def keep_copy(self, revision: str) -> None:
        """Keep what there is, before it is brought to that revision.

        Raises:
            InputError: that cannot be done.
        """
        ...

    def begin(self, connection: sa.Connection, seconds: float) -> None:
        """Begin a transaction that writes; wait for another program's lock for that long."""
        ...

    def failure(self, error: sa.exc.DBAPIError, seconds: float) -> StorageError | None:
        """Error to raise for one of the driver's; None: it is a bug of ours."""
        ...

    def damaged(self, what: object) -> StorageError:
        """Error for data that cannot be read."""
        ...

    def check(self, *, with_indexes: bool = False) -> None:
        """Read the data anew, as far as that is quickly done; raises what is wrong with it. `with_indexes`: also
        whether these agree with the rows, without which rows are not found.
        """
        ...


class Database:
    """Short, blocking calls, from any thread; `record` alone never waits and cannot fail."""

    def __init__(self, place: Path | str, *, is_shared: bool = False) -> None:
        """Open or make a database, and bring one of an older version up to date, whose server must not be running.

        `place`: a file of SQLite's, or the URL of a database of PostgreSQL's, which servers may share.

        Raises:
            InputError: it was made by a newer version, is no database, cannot be written, or another server has it.
        """
        self._busy_seconds = _BUSY_SECONDS
        self.backend = _backend(place, is_shared=is_shared)
        self.fence: Callable[[sa.Connection], None] | None = None
        """Called at the beginning of each transaction that writes; raises where it must not."""
        self.on_record: Callable[[], None] | None = None
        """Called when something waits to be written with the next transaction."""
        self._writes = threading.Lock()
        self._recorded: deque[Callable[[Session], object]] = deque()
        try:
            with _named(self.backend):
                self.backend.claim()
                with self.reading() as session:
                    revision = schema_revision(session.connection())
                if revision != newest_schema():
                    if revision is not None:
                        self.backend.keep_copy(newest_schema())
                    with self.writing() as session:
                        self.backend.lock_starts(session.connection())
                        if schema_revision(session.connection()) != newest_schema():  # else another server has
                            upgrade_schema(session.connection())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database; what has not been flushed is lost."""
        self.backend.close()

    def record(self, change: Callable[[Session], object]) -> None:
        """Have something written with the next transaction. It must do no harm twice."""
        self._recorded.append(change)
        if self.on_record is not None:
            self.on_record()

    def flush(self) -> None:
        """Write what has been recorded.

        Raises:
            StorageError: it cannot be written now, and is kept for the next time.
        """
        if self._recorded:
            with self.transaction():
                pass

    def try_flush(self) -> None:
        """`flush`, if that can be done within a moment, or say in the log why not."""
        if not self._recorded:
            return
        try:
            with self.transaction(_LISTING_SECONDS):
                pass
        except StorageError as error:
            _log.warning("rows of sessions and runs wait to be written: %s", error)

    @contextlib.contextmanager
    def writing(self, busy_seconds: float | None = None) -> Iterator[Session]:
        """`transaction` for objects."""
        with self.transaction(busy_seconds) as connection, _session(connection) as session:
            yield session
            session.commit()

    @contextlib.contextmanager
    def transaction(self, busy_seconds: float | None = None) -> Iterator[sa.Connection]:
        """Begins with what has been recorded, and is committed at the end. A small write takes about as long as making
        a session for it: statements need none.

        `busy_seconds`: in place of `_BUSY_SECONDS`.

        Raises:
            StorageError: it cannot be written, and nothing of it was.
        """
        seconds = self._busy_seconds if busy_seconds is None else busy_seconds
        if not self._writes.acquire(timeout=seconds):
            raise locked(seconds)
        with contextlib.ExitStack() as releases, self._own_errors(seconds):
            releases.callback(self._writes.release)
            recorded = list(self._recorded)
            with self.backend.writers.begin() as connection:
                self.backend.begin(connection, seconds)
                if self.fence is not None:
                    self.fence(connection)
                if recorded:
                    with _session(connection) as session:
                        for change in recorded:
                            change(session)
                        session.commit()
                yield connection
            for _ in recorded:
                self._recorded.popleft()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """Raises StorageError: it cannot be read now."""
        with self._own_errors(self._busy_seconds), _session(self.backend.readers) as session:
            yield session

    @contextlib.contextmanager
    def quick(self) -> Iterator[sa.Connection]:
        """A transaction on a connection that one thread has for itself, which fails rather than waits for long; without
        what has been recorded, and without the fence. Where servers share the database.

        Raises:
            StorageError: it could not be done at once.
        """
        assert isinstance(self.backend, Postgresql)
        with self._own_errors(QUICK_SECONDS), self.backend.quick.begin() as connection:
            yield connection

    def time(self) -> float:
        """By the clock of PostgreSQL's server."""
        with self.reading() as session:
            return float(session.execute(sa.select(NOW)).scalar_one())

    def damage(self, *, with_indexes: bool = False) -> str | None:
        """Fault of the data, which is read anew; None if there is none. `with_indexes`: see `Backend.check`."""
        try:
            with self._own_errors(self._busy_seconds):
                self.backend.check(with_indexes=with_indexes)
        except StorageError as error:
            return str(error)
        return None

    @contextlib.contextmanager
    def _own_errors(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise self.backend.damaged(error) from error
        except sa.exc.TimeoutError as error:
            raise exhausted() from error
        except sa.exc.DBAPIError as error:
            failure = self.backend.failure(error, seconds)
            if failure is None:
                raise
            raise failure from error


def is_outdated(file: Path) -> bool:
    """True if opening it as a `Database` would change it: an older version made it.

    Raises:
        InputError: a newer version made it, or it is no database.
    """
    backend = _backend(file)
    try:
        with _named(backend), backend.readers.connect() as connection:
            return schema_revision(connection) != newest_schema()
    finally:
        backend.readers.dispose()


def _session(bind: sa.Engine | sa.Connection) -> Session:
    return Session(bind, expire_on_commit=False)


def _backend(place: Path | str, *, is_shared: bool = False) -> Backend:
    if isinstance(place, Path):
        return Sqlite(place, _BUSY_SECONDS)
    try:
        url = sa.make_url(place)
    except sa.exc.ArgumentError:  # its text has the password
        url = None
    if url is None or url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise InputError(
            "the database has to be postgresql://USER:PASSWORD@HOST/NAME; without one the server keeps its rows in "
            "server.db in the state folder"
        )
    return Postgresql(url, _BUSY_SECONDS, is_shared=is_shared)


@contextlib.contextmanager
def _named(backend: Backend) -> Iterator[None]:
    try:
        yield
    except (InputError, StorageError, UnicodeDecodeError, sa.exc.DBAPIError) as error:
        origin = error.__cause__ if isinstance(error, StorageError) else error
        cause = origin.orig if isinstance(origin, sa.exc.DBAPIError) else origin
        raise InputError(f"{backend.name} cannot be opened as a database: {cause}") from error
