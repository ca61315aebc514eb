"""The embedded registry: one SQLite file, which any number of processes use at once."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cookhouse.errors import InputError
from cookhouse.files import unwritable
from cookhouse.registry.base import BaseRegistry, RegistryReader, RegistryWriter
from cookhouse.registry.document import from_document, to_document, with_folders
from cookhouse.registry.model import ModelVersion, NewModel, StageChange

SCHEMA_VERSION = 1
_APPLICATION_ID = 0x636B6872  # "ckhr": distinguishes a registry from any other database
_BUSY_SECONDS = 30

_metadata = sa.MetaData()
_names = sa.Table(
    "names",
    _metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("last_version", sa.Integer, nullable=False),
)
_versions = sa.Table(
    "versions",
    _metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("document", sa.String, nullable=False),
)


class SqliteRegistry(BaseRegistry):
    """Folders within the file's own are kept relative to it, so that they may be moved together."""

    def __init__(self, file: Path) -> None:
        """Open a registry, or begin one, whose file is made when the first version is registered.

        Raises:
            InputError: the file is no registry, a newer version made it, or it cannot be read.
        """
        self.file = file.absolute()
        # Nothing stays open between calls: the last one to let go leaves a single file.
        url = sa.URL.create("sqlite", database=str(self.file))  # a text would be decoded, and cut at a question mark
        self._engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        sa.event.listen(self._engine, "connect", _prepare_connection)
        if self.file.exists():
            self._check()

    def check_writable(self) -> None:
        """Raises `InputError` where no version could be registered."""
        if (reason := unwritable(self.file)) is not None:
            raise InputError(f"the registry {self.file} cannot be written: {reason}; name another one")

    @contextlib.contextmanager
    def reading(self) -> Iterator[RegistryReader]:
        if not self.file.exists():
            yield _Nothing()
            return
        with self._errors(), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")  # all that is read is of one moment
            yield _Rows(connection, self.file.parent) if _tables(connection) else _Nothing()

    @contextlib.contextmanager
    def writing(self) -> Iterator[RegistryWriter]:
        with self._errors():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self._engine.connect() as connection:
                # The lock is taken at once: what is read within decides what is written.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                if not _tables(connection):
                    _make_tables(connection)
                yield _Rows(connection, self.file.parent)
                connection.commit()

    def _check(self) -> None:
        """Before anything else is done to the file."""
        try:
            with contextlib.closing(sqlite3.connect(f"{self.file.as_uri()}?mode=rw", uri=True)) as connection:
                connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
                connection.execute("BEGIN")  # all that is read is of one moment
                application_id, schema = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
                )
                is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        except sqlite3.Error as error:
            raise InputError(f"{self.file} cannot be opened as a registry: {error}") from error
        if is_empty and not application_id:
            return
        if application_id != _APPLICATION_ID:
            raise InputError(f"{self.file} is a database, but no registry of models; name another file")
        if schema > SCHEMA_VERSION:
            raise InputError(
                f"{self.file} was made by a newer version of cookhouse (schema {schema}, this one has "
                f"{SCHEMA_VERSION}); use that version, or name another registry"
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's failures without SQL, and with the way out."""
        try:
            yield
        except OSError as error:
            raise InputError(f"the registry {self.file} cannot be written: {error.strerror}") from error
        except sa.exc.DatabaseError as error:
            code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # without the extension
            reason = str(error.orig)
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                reason = f"another program has locked it for {_BUSY_SECONDS} s; try again"
            raise InputError(f"the registry {self.file} cannot be used: {reason}") from error


class _Nothing:
    """A registry in which nothing has been registered."""

    def every(self, name: str | None = None) -> Sequence[ModelVersion]:
        del name
        return ()


class _Rows:
    """The versions, within a transaction."""

    def __init__(self, connection: sa.Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def every(self, name: str | None = None) -> Sequence[ModelVersion]:
        wanted = sa.select(_versions.c.document)
        if name is not None:
            wanted = wanted.where(_versions.c.name == name)
        rows = self._connection.execute(wanted).scalars()
        return [with_folders(from_document(row), self._absolute) for row in rows]

    def add(self, new: NewModel, first: StageChange) -> ModelVersion:
        last = self._connection.execute(
            sa.select(_names.c.last_version).where(_names.c.name == new.name)
        ).scalar_one_or_none()
        number = 1 if last is None else last + 1
        counted = _names.insert() if last is None else _names.update().where(_names.c.name == new.name)
        self._connection.execute(counted.values(name=new.name, last_version=number))
        version = ModelVersion.of(new, number, first)
        self._connection.execute(
            _versions.insert().values(name=new.name, version=number, document=self._document(version))
        )
        return version

    def change(self, version: ModelVersion) -> None:
        self._connection.execute(_versions.update().where(*_is(version)).values(document=self._document(version)))

    def remove(self, version: ModelVersion) -> None:
        self._connection.execute(_versions.delete().where(*_is(version)))

    def _document(self, version: ModelVersion) -> str:
        return to_document(with_folders(version, self._relative))

    def _relative(self, folder: str) -> str:
        path = Path(folder)
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else folder

    def _absolute(self, folder: str) -> str:
        return str(self._folder / folder)


def _is(version: ModelVersion) -> tuple[sa.ColumnElement[bool], ...]:
    return _versions.c.name == version.name, _versions.c.version == version.version


def _tables(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one())


def _make_tables(connection: sa.Connection) -> None:
    _metadata.create_all(connection)
    connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _prepare_connection(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves: Python's driver leaves some statements out
    with contextlib.closing(connection.cursor()) as cursor:
        # No write-ahead log: of two processes that turn it on at once, SQLite refuses one without waiting.
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
