"""The SQLite file of a store: its schema, its transactions, and its failures in words of ours."""

import contextlib
import json
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageBusyError, StorageError
from cookhouse.server.store import schema

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 25
"""How long a transaction waits for those before it, and again for another program's lock. The SDK waits 60 s."""
_LISTING_SECONDS = 1.0
"""The same where a list waits for rows to be written that it would have: without them it is old, and not wrong."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, 0)
"""0: no code of SQLite's, but a text that Python's driver could not decode."""


class Database:
    """Short, blocking calls, from any thread; `record` alone never waits and cannot fail."""

    def __init__(self, file: Path) -> None:
        """Open or make the file, and bring one of an older version up to date, whose server must not be running.

        Raises:
            InputError: it was made by a newer version, is no database, or cannot be written.
        """
        self._file = file
        self._engine = _connect(file)
        self._writes = threading.Lock()
        self._recorded: deque[sa.Executable] = deque()
        try:
            with _named(file):
                with self.reading() as connection:
                    is_current = schema.is_current(connection)
                if not is_current:
                    with self.writing() as connection:
                        schema.upgrade(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file; what has not been flushed is lost."""
        self._engine.dispose()

    def record(self, statement: sa.Executable) -> None:
        """Have something written with the next transaction. It must do no harm twice."""
        self._recorded.append(statement)

    def flush(self) -> None:
        """Write what has been recorded.

        Raises:
            StorageError: it cannot be written now, and is kept for the next time.
        """
        if self._recorded:
            with self.writing():
                pass

    def try_flush(self) -> None:
        """`flush`, if that can be done within a moment, or say in the log why not."""
        if not self._recorded:
            return
        try:
            with self.writing(_LISTING_SECONDS):
                pass
        except StorageError as error:
            _log.warning("rows of sessions and runs wait to be written: %s", error)

    @contextlib.contextmanager
    def writing(self, busy_seconds: float | None = None) -> Iterator[sa.Connection]:
        """A transaction, which begins with what has been recorded. `busy_seconds` in place of `_BUSY_SECONDS`.

        Raises:
            StorageError: it cannot be written, and nothing of it was.
        """
        seconds = _BUSY_SECONDS if busy_seconds is None else busy_seconds
        with self._turn(seconds), _own_errors(seconds), self._engine.connect() as connection:
            # The lock is taken at once: later on, waiting for it is in vain where another has written meanwhile.
            with _waiting(connection, seconds):
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            recorded = list(self._recorded)
            for statement in recorded:
                connection.execute(statement)
            yield connection
            connection.commit()
            for _ in recorded:
                self._recorded.popleft()

    @contextlib.contextmanager
    def _turn(self, seconds: float) -> Iterator[None]:
        if not self._writes.acquire(timeout=seconds):
            raise _busy(seconds)
        try:
            yield
        finally:
            self._writes.release()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Raises StorageError: it cannot be read now."""
        with _own_errors(), self._engine.connect() as connection:
            yield connection

    def damage(self) -> str | None:
        """What is wrong with the pages of the file, which are read anew; None if nothing is."""
        engine = _connect(self._file)
        try:
            with _own_errors(), engine.connect() as connection:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
                if found != "ok":
                    raise _damaged(found)
        except StorageError as error:
            return str(error)
        finally:
            engine.dispose()
        return None


def is_outdated(file: Path) -> bool:
    """Whether opening it as a `Database` would change it: an older version made it.

    Raises:
        InputError: a newer version made it, or it is no database.
    """
    engine = _connect(file)
    try:
        with _named(file), engine.connect() as connection:
            return not schema.is_current(connection)
    finally:
        engine.dispose()


@contextlib.contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except (InputError, StorageError, sa.exc.DatabaseError) as error:
        origin = error.__cause__ if isinstance(error, StorageError) else error
        cause = origin.orig if isinstance(origin, sa.exc.DatabaseError) else origin
        raise InputError(f"{file} cannot be opened as a database: {cause}") from error


@contextlib.contextmanager
def _own_errors(seconds: float | None = None) -> Iterator[None]:
    """What a client is told of SQLite's failures: no SQL, and the way out."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise _damaged(error) from error
    except sa.exc.DatabaseError as error:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # without the extension
        if code in _DAMAGED:
            raise _damaged(error.orig) from error
        if not isinstance(error, sa.exc.OperationalError):
            raise
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _busy(_BUSY_SECONDS if seconds is None else seconds) from error
        what = "the disk is full" if code == sqlite3.SQLITE_FULL else str(error.orig)
        raise StorageError(
            f"the service's database cannot be used: {what}; free space on its disk, for example by deleting "
            "checkpoints, and try again"
        ) from error


def _damaged(what: object) -> StorageError:
    _log.error("the database is damaged: %s", what)
    return StorageError(
        "the service's database is damaged; tell its operator, who has to stop the service and put a copy of server.db "
        "in its place"
    )


def _busy(seconds: float) -> StorageBusyError:
    return StorageBusyError(f"the service's database was locked by another program for {seconds:g} s; try again")


@contextlib.contextmanager
def _waiting(connection: sa.Connection, seconds: float) -> Iterator[None]:
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * seconds)}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * _BUSY_SECONDS)}")


def _connect(file: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{file}")
    sa.event.listen(engine, "connect", _prepare_connection)
    return engine


def _prepare_connection(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: Python's driver leaves some statements out
    with contextlib.closing(connection.cursor()) as cursor:
        # First, since the others wait for locks, too.
        cursor.execute(f"PRAGMA busy_timeout = {round(1000 * _BUSY_SECONDS)}")
        # A write-ahead log lets listings go on while a checkpoint is recorded. FULL: without the row that was last
        # written before a power cut, a checkpoint that a client was told of would be put aside at the next start.
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
