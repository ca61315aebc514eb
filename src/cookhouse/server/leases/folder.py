"""The folder that the servers of a service share: a file there has the service's id, and the database knows of it.

One that is not mounted is empty, or not there: a server over it would find nothing of the sessions that it takes over.
"""

import os
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.files import sync
from cookhouse.server.store.database import Database
from cookhouse.server.store.identity import service_id_in
from cookhouse.server.store.private import private_folder
from cookhouse.server.store.tables import ServiceRecord

_FILE = "service-id"
_MARKED = "shared folder"
"""The row that says that the file has been written; its value is what the first server called the folder."""


def check_shared_folder(folder: Path, database: Database) -> None:
    """See that a folder is that of the service. Its first server makes it, and no other does.

    Raises:
        InputError: it is another, or cannot be used.
        StorageError: the database cannot be written.
    """
    with database.writing() as session:
        service_id = service_id_in(session, database)
        marked = session.get(ServiceRecord, _MARKED)
        try:
            if marked is None:
                private_folder(folder)
            found = _id_in(folder)
            if marked is None and found is None:
                _write(folder, service_id)
                found = service_id
        except OSError as error:
            raise InputError(f"the shared folder {folder} cannot be used: {error.strerror}; name another") from error
        if found is None:
            assert marked is not None
            raise InputError(
                f"the shared folder {folder} is not that of the other servers, since it has no file {_FILE}: mount "
                f"here what the first server called {marked.value}, and start this one again; if it is that all the "
                f"same, write {service_id} into {folder / _FILE}"
            )
        if found != service_id:
            raise InputError(
                f"the shared folder {folder} is that of another service: {folder / _FILE} says {found or 'nothing'!r}, "
                f"and the database {service_id}; mount the folder of this database's servers, or name one of their "
                "own. If no other database goes with it, delete that file, or write into it what the database says"
            )
        if marked is None:
            session.add(ServiceRecord(name=_MARKED, value=str(folder.absolute())))


def _id_in(folder: Path) -> str | None:
    """None: it has none."""
    try:
        return (folder / _FILE).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(folder: Path, service_id: str) -> None:
    with (folder / _FILE).open("x") as file:
        file.write(f"{service_id}\n")
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
