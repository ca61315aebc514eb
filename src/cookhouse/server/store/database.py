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
from cookhouse.server.store import schema
from cookhouse.server.store.failures import locked
from cookhouse.server.store.sqlite import Sqlite

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 25
"""How long a transaction waits for those before it, and again for another program's lock. The SDK waits 60 s."""
_LISTING_SECONDS = 1.0
"""The same where a list waits for rows to be written that it would have: without them it is old, and not wrong."""


class Backend(Protocol):
    """What of a database depends on whose it is."""

    name: str
    """To be told to the operator."""

    def connect(self) -> sa.Engine: ...

    def begin(self, connection: sa.Connection, seconds: float) -> None:
        """Begin a transaction that writes; wait for another program's lock for that long."""
        ...

    def failure(self, error: sa.exc.DBAPIError, seconds: float) -> StorageError | None:
        """What to say of an error of the driver's; None: it is a bug of ours."""
        ...

    def damaged(self, what: object) -> StorageError:
        """What to say of data that cannot be read."""
        ...

    def check(self, connection: sa.Connection) -> None:
        """Raises StorageError: some of the data cannot be read."""
        ...


class Database:
    """Short, blocking calls, from any thread; `record` alone never waits and cannot fail."""

    def __init__(self, place: Path | str) -> None:
        """Open or make the database, and bring one of an older version up to date, whose server must not be running.

        Raises:
            InputError: it was made by a newer version, is no database, or cannot be written.
        """
        self._busy_seconds = _BUSY_SECONDS
        self._backend = _backend(place)
        self.engine = self._backend.connect()
        self._writes = threading.Lock()
        self._recorded: deque[Callable[[Session], object]] = deque()
        try:
            with _named(self._backend):
                with self.reading() as session:
                    is_current = schema.is_current(session.connection())
                if not is_current:
                    with self.writing() as session:
                        schema.upgrade(session.connection())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database; what has not been flushed is lost."""
        self.engine.dispose()

    def record(self, change: Callable[[Session], object]) -> None:
        """Have something written with the next transaction. It must do no harm twice."""
        self._recorded.append(change)

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
    def writing(self, busy_seconds: float | None = None) -> Iterator[Session]:
        """A transaction, which begins with what has been recorded, and is committed at the end.

        `busy_seconds`: in place of `_BUSY_SECONDS`.

        Raises:
            StorageError: it cannot be written, and nothing of it was.
        """
        seconds = self._busy_seconds if busy_seconds is None else busy_seconds
        with self._turn(seconds), self._own_errors(seconds), self._session() as session:
            self._backend.begin(session.connection(), seconds)
            recorded = list(self._recorded)
            for change in recorded:
                change(session)
            yield session
            session.commit()
            for _ in recorded:
                self._recorded.popleft()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """Raises StorageError: it cannot be read now."""
        with self._own_errors(self._busy_seconds), self._session() as session:
            yield session

    def damage(self) -> str | None:
        """What is wrong with the data, which is read anew; None if nothing is."""
        engine = self._backend.connect()
        try:
            with self._own_errors(self._busy_seconds), engine.connect() as connection:
                self._backend.check(connection)
        except StorageError as error:
            return str(error)
        finally:
            engine.dispose()
        return None

    def _session(self) -> Session:
        return Session(self.engine, expire_on_commit=False)

    @contextlib.contextmanager
    def _turn(self, seconds: float) -> Iterator[None]:
        if not self._writes.acquire(timeout=seconds):
            raise locked(seconds)
        try:
            yield
        finally:
            self._writes.release()

    @contextlib.contextmanager
    def _own_errors(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except json.JSONDecodeError as error:
            raise self._backend.damaged(error) from error
        except sa.exc.DBAPIError as error:
            told = self._backend.failure(error, seconds)
            if told is None:
                raise
            raise told from error


def is_outdated(file: Path) -> bool:
    """Whether opening it as a `Database` would change it: an older version made it.

    Raises:
        InputError: a newer version made it, or it is no database.
    """
    backend = _backend(file)
    engine = backend.connect()
    try:
        with _named(backend), engine.connect() as connection:
            return not schema.is_current(connection)
    finally:
        engine.dispose()


def _backend(place: Path | str) -> Backend:
    return Sqlite(Path(place), _BUSY_SECONDS)


@contextlib.contextmanager
def _named(backend: Backend) -> Iterator[None]:
    try:
        yield
    except (InputError, StorageError, sa.exc.DBAPIError) as error:
        origin = error.__cause__ if isinstance(error, StorageError) else error
        cause = origin.orig if isinstance(origin, sa.exc.DBAPIError) else origin
        raise InputError(f"{backend.name} cannot be opened as a database: {cause}") from error
