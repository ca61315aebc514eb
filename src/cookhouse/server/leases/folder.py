"""The folder that the servers of a service share: a file there has the service's id, and the database knows of it.

One that is not mounted is empty, or not there: a server over it would find nothing of the sessions that it takes over.
"""

from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.server.storage.store.database import Database
from cookhouse.server.storage.store.identity import ID_FILE, id_in, service_id_in, write_id
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.tables import ServiceRecord

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
            found = id_in(folder)
            if marked is None and found is None:
                write_id(folder, service_id)
                found = service_id
        except OSError as error:
            raise InputError(f"the shared folder {folder} cannot be used: {error.strerror}; name another") from error
        if found is None:
            assert marked is not None
            raise InputError(
                f"the shared folder {folder} is not that of the other servers, since it has no file {ID_FILE}: mount "
                f"here what the first server called {marked.value}, and start this one again; if it is that all the "
                f"same, write {service_id} into {folder / ID_FILE}"
            )
        if found != service_id:
            raise InputError(
                f"the shared folder {folder} is that of another service: {folder / ID_FILE} says "
                f"{found or 'nothing'!r}, and the database {service_id}; mount the folder of this database's "
                "servers, or name one of their own. If no other database goes with it, delete that file, or write into "
                "it what the database says"
            )
        if marked is None:
            session.add(ServiceRecord(name=_MARKED, value=str(folder.absolute())))
