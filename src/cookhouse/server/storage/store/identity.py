"""Whose a folder or a bucket is: the id of a service, drawn once and kept in its database, whose copy has the same."""

import os
import uuid
from pathlib import Path

from sqlalchemy.orm import Session

from cookhouse.errors import InputError
from cookhouse.files import sync
from cookhouse.server.storage.store.database import Database
from cookhouse.server.storage.store.private import make_private, private_folder
from cookhouse.server.storage.store.tables import ServiceRecord

ID_FILE = "service-id"
_ID = "id"


def service_id(database: Database) -> str:
    """Raises StorageError: the database cannot be written."""
    with database.writing() as session:
        return service_id_in(session, database)


def service_id_in(session: Session, database: Database, known: str | None = None) -> str:
    """The same, in a transaction that goes on; no other server starts before its end. `known`: what a database that
    has none gets.
    """
    database.backend.lock_starts(session.connection())
    record = session.get(ServiceRecord, _ID)
    if record is None:
        record = ServiceRecord(name=_ID, value=known or uuid.uuid4().hex)
        session.add(record)
    return record.value


def check_state_folder(folder: Path, database: Database) -> None:
    """See that the state folder of a single server and its database go together; where one of them has no id yet, it
    gets that of the other.

    Raises:
        InputError: they do not, or the folder cannot be used.
        StorageError: the database cannot be written.
    """
    try:
        found = id_in(folder)
        with database.writing() as session:
            known = service_id_in(session, database, found)
        if not found:
            private_folder(folder)
            write_id(folder, known)
    except OSError as error:
        raise InputError(f"the state folder {folder} cannot be used: {error.strerror}; choose another") from error
    if found and found != known:
        raise InputError(
            f"the state folder {folder} is not that of this database: {folder / ID_FILE} says {found!r}, and "
            f"{database.backend.name} says {known!r}. Start with the database that goes with the folder, or choose "
            f"another --state-dir; if they go together all the same, write {known} into {folder / ID_FILE}"
        )


def id_in(folder: Path) -> str | None:
    """The id that a folder has; None: it has none."""
    try:
        return (folder / ID_FILE).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_id(folder: Path, known: str) -> None:
    """Give a folder an id, whole or not at all. Raises OSError."""
    begun = folder / f".{ID_FILE}"
    make_private(begun)
    with begun.open("w") as file:
        file.write(f"{known}\n")
        file.flush()
        os.fsync(file.fileno())
    begun.rename(folder / ID_FILE)
    sync(folder)
