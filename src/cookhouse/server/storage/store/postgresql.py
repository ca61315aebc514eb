"""A store in a database of PostgreSQL's, which one server has at a time, or several that share it."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.store.failures import damaged, full, locked, unreachable, unusable
from cookhouse.server.storage.store.row_sums import to_json

_log = logging.getLogger(__name__)
NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
"""Seconds since the epoch, by the clock of the database's machine."""
_CLAIM = 0x636B6872
"""The advisory lock of whoever writes: "ckhr"."""
_CLAIM_SECONDS = 5.0
"""How long to wait for it: the last connection of a server that was killed may take a moment to end."""
_START = _CLAIM + 1
"""The lock of whoever changes tables, or rows of the service."""
_IDLE_SECONDS = 3
"""A shared database ends a transaction in which its server does nothing for so long, such as one that was stopped: it
must not hold back who takes its place.
"""
_CONNECT_SECONDS = 10
QUICK_SECONDS = 1.5
"""How long a statement of `Postgresql.quick` may take, and wait for a lock."""
_QUICK_CONNECT_SECONDS = 2  # libpq knows nothing shorter
_QUICK_SOCKET = {"keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 2}
"""Of a connection that waits for an answer: it is given up when the network is cut."""
_NUM_READERS = 10
"""Connections that are kept for reading, and as many again while they are needed: a database has about a hundred."""
_SETTINGS = {
    "synchronous_commit": "on",  # what a client has as an answer is on the disk, whatever the cluster's default
    # A server whose network is cut is gone for the database after half a minute, and its lock with it.
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 4,
}
_TAKEN = "55P03"
_LOCKED = (_TAKEN, "40001", "40P01")  # lock_not_available, serialization_failure, deadlock_detected
_IDLE = "25P03"  # idle_in_transaction_session_timeout
_CANCELED = "57014"  # query_canceled, also by statement_timeout
_FULL = "53100"
_DAMAGED = ("XX001", "XX002")
_UNREACHABLE = ("08", "53", "57P")
"""Beginnings of codes: the connection, a lack of resources, an operator's intervention."""


class Postgresql:
    """A `Backend`."""

    def __init__(self, url: sa.URL, busy_seconds: float, *, is_shared: bool = False) -> None:
        """`busy_seconds`: how long statements wait for a lock. `is_shared`: with other servers that share it.

        Raises:
            InputError: the driver is not installed.
        """
        self.name = url.set(query={}).render_as_string()
        self._busy_seconds = busy_seconds
        self._is_shared = is_shared
        self._url = url.set(drivername="postgresql+psycopg")
        self.readers = self._engine(
            isolation_level="AUTOCOMMIT", pool_size=_NUM_READERS, max_overflow=_NUM_READERS, pool_timeout=busy_seconds
        )
        # The lock belongs to the one connection that writes: whoever has lost it cannot write either.
        self.writers = self._engine(pool_size=1, max_overflow=0)
        sa.event.listen(self.writers, "connect", _share_claim if is_shared else _take_claim)
        self.quick = self._quick_engine()
        """One connection, for one thread that would rather fail than wait."""
        for engine in (self.readers, self.writers, self.quick):
            sa.event.listen(engine, "connect", _replace_nul)

    def close(self) -> None:
        for engine in (self.readers, self.writers, self.quick):
            # What a thread still uses would go back to a pool that nobody closes any more.
            sa.event.listen(engine, "checkin", _close)
            engine.dispose()

    def claim(self) -> None:
        try:
            with self.writers.connect():
                pass
        except sa.exc.OperationalError as error:
            if _code(error) != _TAKEN:
                raise
            way_out = ", or start both with --shared-folder" if self._is_shared else ""
            raise InputError(
                f"it is in use by another server; stop that{way_out}, or choose another database"
            ) from error

    def lock_starts(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_START)))
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # Alembic and disks take long

    def keep_copy(self, revision: str) -> None:
        _log.warning(
            "the tables of %s are brought to schema %s, which older versions of cookhouse cannot use; a way back is a "
            "copy that pg_dump made before",
            self.name,
            revision,
        )

    def begin(self, connection: sa.Connection, seconds: float) -> None:
        if seconds != self._busy_seconds:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * seconds)}")

    def failure(self, error: sa.exc.DBAPIError, seconds: float) -> StorageError | None:
        code = _code(error)
        if code in _LOCKED:
            return locked(seconds)
        if code in (_IDLE, _CANCELED):
            return unreachable(error.orig)
        if code == _FULL:
            return full()
        if code in _DAMAGED:
            return self.damaged(error.orig)
        if not isinstance(error, sa.exc.OperationalError | sa.exc.InternalError):
            return None
        return unreachable(error.orig) if code.startswith(_UNREACHABLE) or not code else unusable(str(error.orig))

    def damaged(self, what: object) -> StorageError:
        return damaged(what, "stop the service and restore its database from a backup")

    def check(self, *, with_indexes: bool = False) -> None:  # noqa: ARG002
        with self.readers.connect() as connection:
            connection.execute(sa.select(1))

    def _quick_engine(self) -> sa.Engine:
        given = {"connect_timeout": _QUICK_CONNECT_SECONDS, **_QUICK_SOCKET}
        settings = {"statement_timeout": round(1000 * QUICK_SECONDS)}
        return self._engine(QUICK_SECONDS, given, settings, pool_size=1, max_overflow=0, pool_timeout=QUICK_SECONDS)

    def _engine(
        self,
        busy_seconds: float | None = None,
        given: Mapping[str, int] = MappingProxyType({}),
        more_settings: Mapping[str, int] = MappingProxyType({}),
        **options: Any,
    ) -> sa.Engine:
        """`given`: what the URL may not change."""
        busy_seconds = self._busy_seconds if busy_seconds is None else busy_seconds
        settings = {**_SETTINGS, "lock_timeout": round(1000 * busy_seconds), **more_settings}
        if self._is_shared:
            settings["idle_in_transaction_session_timeout"] = 1000 * _IDLE_SECONDS
        words = [f"-c {name}={value}" for name, value in settings.items()]
        arguments = {
            "application_name": "cookhouse",
            "connect_timeout": _CONNECT_SECONDS,
            "tcp_user_timeout": round(1000 * busy_seconds),
            **self._url.query,
            **given,
            "options": " ".join([str(self._url.query.get("options", "")), *words]).strip(),
        }
        try:
            return sa.create_engine(
                self._url, connect_args=arguments, json_serializer=to_json, pool_pre_ping=True, **options
            )
        except ModuleNotFoundError as error:
            from cookhouse.extras import install_command

            raise InputError(
                f"PostgreSQL needs the package {error.name}, which is not installed: {install_command('postgres')}"
            ) from error


def _take_claim(connection: Any, _record: Any) -> None:
    _lock(connection, "pg_advisory_lock")


def _share_claim(connection: Any, _record: Any) -> None:
    """Keep those out who do not share the database."""
    _lock(connection, "pg_advisory_lock_shared")


def _lock(connection: Any, function: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {round(1000 * _CLAIM_SECONDS)}")
            cursor.execute(f"SELECT {function}({_CLAIM})")
        connection.commit()
    except BaseException:
        connection.close()
        raise


def _close(_connection: Any, record: Any) -> None:
    record.invalidate()


def _replace_nul(connection: Any, _record: Any) -> None:
    """Have U+0000 in a client's text written as U+FFFD: PostgreSQL keeps no other text that Python has."""
    from psycopg.adapt import Dumper

    class TextDumper(Dumper):
        def dump(self, obj: str) -> bytes:
            return obj.replace("\0", "\ufffd").encode()

    connection.adapters.register_dumper(str, TextDumper)


def _code(error: sa.exc.DBAPIError) -> str:
    """The SQLSTATE; empty where no server said one: the connection failed."""
    return getattr(error.orig, "sqlstate", None) or ""
