"""Copies of checkpoints that clients asked for, by what they call their requests, where servers share a database."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.storage.store.postgresql import NOW
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import CopyRecord, ServerRecord

_KEPT_SECONDS = 86_400
"""How long a retry is recognized."""


class Copies:
    """Short, blocking calls, from any thread."""

    def __init__(self, store: Store, server_id: str) -> None:
        self._database = store.database
        self._server_id = server_id

    def begin(self, owner: str, idempotency_key: str) -> str | None:
        """Have this server make a copy; the id of the checkpoint that has been made already.

        Raises:
            StorageBusyError: another server makes it.
        """
        claim = {"owner": owner, "idempotency_key": idempotency_key, "server_id": self._server_id}
        with self._database.writing() as session:
            session.execute(sa.delete(CopyRecord).where(CopyRecord.created_at < NOW - _KEPT_SECONDS))
            session.execute(insert(CopyRecord).values(**claim, created_at=NOW).on_conflict_do_nothing())
            record = session.get_one(CopyRecord, (owner, idempotency_key), with_for_update=True)
            if record.checkpoint_id is not None or record.server_id == self._server_id:
                return record.checkpoint_id
            if session.get(ServerRecord, record.server_id) is not None:
                raise StorageBusyError("another server makes this copy; send it again")
            record.server_id = self._server_id
        return None

    def finish(self, session: Session, owner: str, idempotency_key: str, checkpoint_id: str) -> None:
        """In the transaction that writes the checkpoint: one whose request is not recognized would be made again."""
        given = sa.update(CopyRecord).filter_by(owner=owner, idempotency_key=idempotency_key)
        session.execute(given.where(CopyRecord.server_id == self._server_id).values(checkpoint_id=checkpoint_id))

    def drop(self, owner: str, idempotency_key: str) -> None:
        """Forget a copy that this server could not make, if it has not: a commit may have gone unanswered."""
        given = sa.delete(CopyRecord).filter_by(owner=owner, idempotency_key=idempotency_key)
        with self._database.writing() as session:
            is_unmade = CopyRecord.checkpoint_id.is_(None)
            session.execute(given.where(CopyRecord.server_id == self._server_id, is_unmade))
