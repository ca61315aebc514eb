"""Heartbeats of a server, each second, over a connection that no other work of its can hold up."""

import zlib
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from cookhouse.server.leases.members import Member, Members
from cookhouse.server.storage.store.postgresql import NOW
from cookhouse.server.storage.store.tables import ServerRecord, SessionRecord


class Beats:
    """Blocking calls of one thread, for two seconds or so. Each raises StorageError where the database has not answered
    by then.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._database = members.store.database
        self._unsure: Sequence[str] = ()
        """Sessions of a claim that failed: nobody knows what became of it."""

    def beat(self) -> Sequence[Member] | None:
        """Say that this server is alive; all that there are, by id, or None: it is none of them any more."""
        mine = sa.update(ServerRecord).where(ServerRecord.server_id == self._members.server_id).values(heard_at=NOW)
        with self._database.quick() as connection:
            now = connection.scalars(mine.returning(ServerRecord.heard_at)).first()
            members = _members(connection)
        if now is None:
            return None
        self._members.store.note_time(now)
        return members

    def living(self) -> Sequence[Member]:
        """All that there are, by id."""
        with self._database.quick() as connection:
            return _members(connection)

    def begin_claiming(self) -> None:
        """Have the others leave this server its part of what nobody holds."""
        mine = sa.update(ServerRecord).where(ServerRecord.server_id == self._members.server_id)
        with self._database.quick() as connection:
            connection.execute(mine.values(is_leaving=False))

    def drop(self, silent: Mapping[str, float]) -> None:
        """Have servers end that have said nothing since; one in the middle of a transaction, a little later."""
        key = sa.tuple_(ServerRecord.server_id, ServerRecord.heard_at)
        found = sa.select(ServerRecord.server_id).where(key.in_(silent.items())).with_for_update(skip_locked=True)
        with self._database.quick() as connection:
            self._members.fence(connection)
            connection.execute(sa.delete(ServerRecord).where(ServerRecord.server_id.in_(found.scalar_subquery())))

    def claim(self, living: Sequence[Member]) -> Sequence[str]:
        """Take this server's part of the sessions that nobody holds; their ids."""
        me = self._members.server_id
        takers = [member.server_id for member in living if not member.is_leaving]
        if me not in takers:
            return []
        is_held = sa.exists().where(ServerRecord.server_id == SessionRecord.server_id)
        free = sa.select(SessionRecord.session_id, SessionRecord.server_id).where(
            SessionRecord.finished_at.is_(None), ~is_held
        )
        with self._database.quick() as connection:
            self._members.fence(connection)
            found = connection.execute(free).all()
            able = self._members.serving.able(connection, [row.session_id for row in found], takers)
            part = [row for row in found if _whose(row.session_id, able[row.session_id]) == me]
            wanted = sorted({*self._unsure, *(row.session_id for row in part)})
            if not wanted:
                return []
            self._unsure = wanted
            taken = connection.scalars(_taking(wanted, {row.server_id for row in part} - {None}, me)).all()
        self._unsure = ()
        return sorted(taken)


def _whose(session_id: str, takers: Sequence[str]) -> str | None:
    return takers[zlib.crc32(session_id.encode()) % len(takers)] if takers else None


def _members(connection: sa.Connection) -> Sequence[Member]:
    columns = ServerRecord.server_id, ServerRecord.url, ServerRecord.is_leaving, ServerRecord.heard_at
    rows = connection.execute(sa.select(*columns).order_by(ServerRecord.server_id)).mappings()
    return [Member(**row) for row in rows]


def _taking(session_ids: Sequence[str], dead: set[str], me: str) -> sa.Executable:
    """Takes sessions that nobody has claimed since they were found free, and reports these and what is held."""
    names = sa.literal(session_ids, sa.ARRAY(sa.String))
    is_free = SessionRecord.server_id.is_(None) | SessionRecord.server_id.in_([*dead, me])
    wanted = sa.update(SessionRecord).where(
        SessionRecord.session_id == sa.any_(names), is_free, SessionRecord.finished_at.is_(None)
    )
    return wanted.values(server_id=me).returning(SessionRecord.session_id)
