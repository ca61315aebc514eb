"""A store in a file of SQLite's, in a state folder that its process has locked."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.store.failures import damaged, failing, full, locked, unusable
from cookhouse.server.storage.store.private import make_private
from cookhouse.server.storage.store.row_sums import to_json

_MAX_LOG_BYTES = 16 * 2**20
"""What the write-ahead log keeps of the disk once what is in it has gone into the database."""
_COPY_BUSY_SECONDS = 25.0
_COPY_PAGES = 1024
"""Between two reports of progress."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, 0)
"""0: no code of SQLite's, but a text that Python's driver could not decode."""


class Sqlite:
    """A `Backend`."""

    def __init__(self, file: Path, busy_seconds: float) -> None:
        """`busy_seconds`: how long connections wait for another program's lock."""
        self.name = str(file)
        self._file = file
        self._busy_seconds = busy_seconds
        if str(file) != ":memory:":
            make_private(file)
        self.readers = self.writers = self._connect()

    def close(self) -> None:
        self.readers.dispose()

    def claim(self) -> None:
        """The lock of the state folder does it."""

    def lock_starts(self, connection: sa.Connection) -> None:
        """The lock of the state folder does it."""

    def keep_copy(self, revision: str) -> None:
        copy = self._file.with_name(f"{self._file.name}.before-{revision}")
        begun = copy.with_name(f".{copy.name}")
        try:
            copy_database(self._file, begun)
            begun.rename(copy)
        except (OSError, sqlite3.Error) as error:
            with contextlib.suppress(OSError):
                begun.unlink()
            raise InputError(f"no copy could be written to {copy} before its tables are changed: {error}") from error

    def begin(self, connection: sa.Connection, seconds: float) -> None:
        if connection.info["busy_seconds"] != seconds:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * seconds)}")
            connection.info["busy_seconds"] = seconds
        # The lock is taken at once: later on, waiting for it is in vain where another has written meanwhile.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def failure(self, error: sa.exc.DBAPIError, seconds: float) -> StorageError | None:
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # without the extension
        if isinstance(error, sa.exc.DatabaseError) and code in _DAMAGED:
            return self.damaged(error.orig)
        if not isinstance(error, sa.exc.OperationalError):
            return None
        if code in _BUSY:
            return locked(seconds)
        if code == sqlite3.SQLITE_IOERR:
            return failing(str(error.orig))
        return full() if code == sqlite3.SQLITE_FULL else unusable(str(error.orig))

    def damaged(self, what: object) -> StorageError:
        return damaged(what, "stop the service and put a copy of server.db in its place")

    def check(self, *, with_indexes: bool = False) -> None:
        engine = self._connect()  # another connection, with no pages in memory
        try:
            with engine.connect() as connection:
                pragma = "integrity_check" if with_indexes else "quick_check"
                found = connection.exec_driver_sql(f"PRAGMA {pragma}(1)").scalar_one()
            if found != "ok":
                raise self.damaged(found)
        finally:
            engine.dispose()

    def _connect(self) -> sa.Engine:
        url = sa.URL.create("sqlite", database=str(self._file))  # a text would be decoded, and cut at a question mark
        engine = sa.create_engine(url, json_serializer=to_json)
        sa.event.listen(engine, "connect", self._prepare)
        return engine

    def _prepare(self, connection: Any, record: Any) -> None:
        record.info["busy_seconds"] = self._busy_seconds
        connection.isolation_level = None  # we begin transactions ourselves: Python's driver leaves some statements out
        with contextlib.closing(connection.cursor()) as cursor:
            # First, since the others wait for locks, too.
            cursor.execute(f"PRAGMA busy_timeout = {round(1000 * self._busy_seconds)}")
            # A write-ahead log lets listings go on while a checkpoint is recorded. FULL: without the row that was last
            # written before a power cut, a checkpoint that a client knows of would be put aside at the next start.
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")


def copy_database(file: Path, copy: Path, on_progress: Callable[[int, int], None] = lambda _done, _pages: None) -> None:
    """Copy a database as of one moment, which another process may be writing to; `on_progress` gets numbers of
    pages.

    Raises:
        OSError: the copy cannot be made.
        sqlite3.Error: the database cannot be read.
    """
    make_private(copy)
    source = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=_COPY_BUSY_SECONDS)
    with contextlib.closing(source), contextlib.closing(sqlite3.connect(copy)) as target:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master")  # from here on, it does not see what others write
        source.backup(target, pages=_COPY_PAGES, progress=lambda _, left, pages: on_progress(pages - left, pages))
