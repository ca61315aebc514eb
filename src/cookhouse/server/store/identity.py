"""Whose a folder or a bucket is: the id of a service, drawn once and kept in its database, whose copy has the same."""

import uuid

from sqlalchemy.orm import Session

from cookhouse.server.store.database import Database
from cookhouse.server.store.tables import ServiceRecord

_ID = "id"


def service_id(database: Database) -> str:
    """Raises StorageError: the database cannot be written."""
    with database.writing() as session:
        return service_id_in(session, database)


def service_id_in(session: Session, database: Database) -> str:
    """The same, in a transaction that goes on; no other server starts before its end."""
    database.backend.lock_starts(session.connection())
    record = session.get(ServiceRecord, _ID)
    if record is None:
        record = ServiceRecord(name=_ID, value=uuid.uuid4().hex)
        session.add(record)
    return record.value
