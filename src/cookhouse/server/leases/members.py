"""Servers that share a database: their profiles, which of them holds a session, and which can take one over.

    join ──► heartbeats, each second ──► leave
               └─ none for `SILENT_SECONDS` ──► the others drop it, and claim its sessions

A server whose row is gone holds nothing, and writes nothing: `fence` is part of each of its transactions, and keeps the
row until the transaction ends.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cookhouse.errors import InputError
from cookhouse.models.names import plain_name
from cookhouse.naming import listed
from cookhouse.server.refusals import LeaseLostError
from cookhouse.server.storage.store.postgresql import NOW
from cookhouse.server.storage.store.row_sums import add_new
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import (
    AnswerRecord,
    EntryRecord,
    RunRecord,
    SamplerRecord,
    SecretRecord,
    ServerRecord,
    SessionRecord,
)

_log = logging.getLogger(__name__)
_MAKES_MODELS = "create_model", "load_weights"
SILENT_SECONDS = 5.0
"""A server unheard of for so long has ended, or is to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Profile that a server writes when it joins the others."""

    journal: str | None = None
    """Where the bodies of requests are kept; None: it does not say where anything is."""
    checkpoints: str | None = None
    """None: in the shared folder."""
    base_models: Sequence[str] | None = None
    """What clients may ask it for; None: it does not say."""


def check_places(mine: Profile, others: Iterable[tuple[str, Profile]]) -> None:
    """See that a server keeps what the others read, too, where they do. `others` come with their URLs.

    Raises:
        InputError: it does not.
    """
    for url, other in others:
        if mine.journal is None or other.journal is None:
            continue
        for option, own, theirs in (
            ("--journal", mine.journal, other.journal),
            ("--checkpoints", mine.checkpoints, other.checkpoints),
        ):
            if _plain(own) != _plain(theirs):
                raise InputError(
                    f"servers that share sessions need the same {option}: this one has {_told(own)}, and the one at "
                    f"{url} {_told(theirs)}; start all of them with the same"
                )


def _plain(place: str | None) -> str | None:
    return None if place is None else place.rstrip("/")


def _told(place: str | None) -> str:
    return "none" if place is None else place


class Serving:
    """Condition on the servers that can take a session over: those that offer the base models of its models and
    sampling clients.

    Asked in one thread.
    """

    def __init__(self) -> None:
        self.unserved: Mapping[str, Collection[str]] = {}
        """Base models of sessions that no server can take over, by session."""

    def able(
        self, connection: sa.Connection, session_ids: Collection[str], takers: Sequence[str]
    ) -> Mapping[str, Sequence[str]]:
        """Of servers that take sessions over, those that can take each of these."""
        if not session_ids:
            self.unserved = {}
            return {}
        needed, offered = _needed(connection, session_ids), _offered(connection, takers)
        able = {
            session_id: [one for one in takers if _offers(offered.get(one), needed[session_id])]
            for session_id in session_ids
        }
        self._note({session_id: needed[session_id] for session_id, servers in able.items() if takers and not servers})
        return able

    def _note(self, unserved: Mapping[str, Collection[str]]) -> None:
        if unserved.keys() - self.unserved.keys():
            _log.warning(
                "%d sessions wait for a server that offers %s: no single one of those that run does. Start one with "
                "all of these (-m NAME)",
                len(unserved),
                listed(sorted({name for names in unserved.values() for name in names})),
            )
        self.unserved = unserved


def _offers(offered: Collection[str] | None, needed: Collection[str]) -> bool:
    return offered is None or all(name in offered or plain_name(name) in offered for name in needed)


def _offered(connection: sa.Connection, servers: Sequence[str]) -> Mapping[str, Collection[str] | None]:
    query = sa.select(ServerRecord.server_id, ServerRecord.base_models).where(ServerRecord.server_id.in_(servers))
    return {row.server_id: row.base_models for row in connection.execute(query)}


def _needed(connection: sa.Connection, session_ids: Collection[str]) -> Mapping[str, Collection[str]]:
    """Names of base models, by session."""
    needed: defaultdict[str, set[str]] = defaultdict(set)
    wanted = sa.literal(list(session_ids), sa.ARRAY(sa.String))  # one parameter, however many there are
    for record in (RunRecord, SamplerRecord):
        rows = sa.select(record.session_id, record.base_model).where(record.session_id == sa.any_(wanted))
        for row in connection.execute(rows.distinct()):
            needed[row.session_id].add(row.base_model)
    # A model that is still to be made has no row of its own.
    making = sa.select(EntryRecord.session_id, EntryRecord.drawn).where(
        EntryRecord.session_id == sa.any_(wanted), EntryRecord.kind.in_(_MAKES_MODELS)
    )
    for row in connection.execute(making):
        drawn = row.drawn.get("checkpoint", row.drawn)
        if "base_model" in drawn:  # else an older version has drawn it
            needed[row.session_id].add(drawn["base_model"])
    return needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    server_id: str
    url: str
    """Where other servers reach it."""
    is_leaving: bool
    """Whether it takes no sessions: it hands its own over soon, or has only just started."""
    heard_at: float
    """By the database's clock, which may be set at any time: to be compared with itself, and shown."""
    silent_seconds: float = 0.0
    """As this server has seen it, by its own clock; where it is to be shown, by the database's."""
    num_sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Of a session that has not ended."""

    server_id: str | None
    url: str | None
    """None: that server has ended, and nobody has claimed the session yet."""
    is_leaving: bool = False


_SAYS_NOTHING = Profile()


def _nothing() -> None:
    pass


class Members:
    """Short, blocking calls, from any thread. Each raises StorageError where the database cannot be reached."""

    def __init__(self, store: Store, url: str) -> None:
        self.server_id = uuid.uuid4().hex
        self.store = store
        self._url = url
        self._database = store.database
        self.on_lost: Callable[[], None] = _nothing
        """Called, in any thread, where a transaction finds that this server is none of them any more."""
        self.serving = Serving()

    def check(self, profile: Profile) -> None:
        """Raises InputError: this server keeps things in other places than those that are alive."""
        with self._database.reading() as session:
            check_places(profile, _profiles(session.connection()))

    def join(self, profile: Profile = _SAYS_NOTHING) -> None:
        """Be one of them, which takes no sessions yet. From now on all that this process writes is fenced.

        Raises as `check`.
        """
        me = {"server_id": self.server_id, "url": self._url, "is_leaving": True, **asdict(profile)}
        with self._database.transaction() as connection:
            self._database.backend.lock_starts(connection)
            check_places(profile, _profiles(connection))
            connection.execute(sa.insert(ServerRecord).values(**me, heard_at=NOW))
        self._database.fence = self.fence

    def fence(self, connection: sa.Connection) -> None:
        """Raises LeaseLostError: this server is none of them any more."""
        mine = sa.select(ServerRecord.server_id).where(ServerRecord.server_id == self.server_id)
        # The weakest lock that keeps the row: beats go on meanwhile.
        if connection.execute(mine.with_for_update(read=True, key_share=True)).first() is None:
            self.on_lost()
            raise LeaseLostError("this server holds no sessions any more: another has taken them over; send it again")

    def is_one(self) -> bool:
        """True if this server has not been dropped."""
        with self._database.reading() as session:
            return session.get(ServerRecord, self.server_id) is not None

    def flush(self) -> None:
        """Write rows that have been recorded, if that can be done within a moment."""
        self._database.try_flush()

    def heard(self) -> Mapping[str, float]:
        """Time of the last beat of each of the others, by the database's clock."""
        query = sa.select(ServerRecord.server_id, ServerRecord.heard_at)
        with self._database.reading() as session:
            rows = session.execute(query.where(ServerRecord.server_id != self.server_id))
            return {row.server_id: row.heard_at for row in rows}

    def counted(self) -> Sequence[Member]:
        """All there are, by id, with how many sessions each holds."""
        count = sa.func.count(SessionRecord.session_id)
        is_held = (SessionRecord.server_id == ServerRecord.server_id) & SessionRecord.finished_at.is_(None)
        columns = ServerRecord.server_id, ServerRecord.url, ServerRecord.is_leaving, ServerRecord.heard_at
        query = sa.select(*columns, count.label("num_sessions")).outerjoin(SessionRecord, is_held).group_by(*columns)
        counted = query.subquery()
        wanted = [counted.c.server_id, counted.c.url, counted.c.is_leaving, counted.c.heard_at, counted.c.num_sessions]
        silent = (NOW - counted.c.heard_at).label("silent_seconds")
        with self._database.reading() as session:
            rows = session.execute(sa.select(*wanted, silent).order_by(counted.c.server_id)).mappings()
            return [Member(**row) for row in rows]

    def begin_leaving(self) -> None:
        mine = sa.update(ServerRecord).where(ServerRecord.server_id == self.server_id)
        with self._database.reading() as session:
            session.execute(mine.values(is_leaving=True))

    def leave(self) -> None:
        """Hand all sessions over to the others; this server writes nothing from then on."""
        with self._database.transaction() as connection:
            connection.execute(sa.delete(ServerRecord).where(ServerRecord.server_id == self.server_id))

    def holder(self, session_id: str) -> Holder | None:
        """None: the session has ended, or never was."""
        query = (
            sa.select(SessionRecord.server_id, ServerRecord.url, ServerRecord.is_leaving)
            .outerjoin(ServerRecord, ServerRecord.server_id == SessionRecord.server_id)
            .where(SessionRecord.session_id == session_id, SessionRecord.finished_at.is_(None))
        )
        with self._database.reading() as session:
            row = session.execute(query).first()
        return None if row is None else Holder(server_id=row[0], url=row[1], is_leaving=bool(row[2]))

    def session_of(self, request_id: str) -> str | None:
        """The session of a request that the journal has."""
        with self._database.reading() as session:
            for record in (EntryRecord, AnswerRecord):
                found = session.scalar(sa.select(record.session_id).where(record.request_id == request_id))
                if found is not None:
                    return str(found)
        return None

    def live_sessions(self) -> Collection[str]:
        """Ids of all that have not ended."""
        with self._database.reading() as session:
            return set(session.scalars(sa.select(SessionRecord.session_id).where(SessionRecord.finished_at.is_(None))))

    def add_session(self, row: SessionRow) -> str:
        """Write a session of this server's, unless its client has begun one by the same key, at any of them; the id of
        the one that counts.
        """
        same = sa.select(SessionRecord.session_id).where(
            SessionRecord.owner == row.owner,
            SessionRecord.idempotency_key == row.idempotency_key,
            SessionRecord.finished_at.is_(None),
        )
        with self._database.writing() as session:
            if row.idempotency_key is not None:
                key = sa.func.hashtextextended(f"{row.owner} {row.idempotency_key}", 0)
                session.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
                if (known := session.scalars(same).first()) is not None:
                    return str(known)
            add_new(session, row)
        return row.session_id

    def secret(self, name: str, drawn: bytes) -> bytes:
        """Secret that all of them sign with: the one drawn first."""
        with self._database.writing() as session:
            session.execute(insert(SecretRecord).values(name=name, value=drawn).on_conflict_do_nothing())
            return session.get_one(SecretRecord, name).value

    def is_alone(self) -> bool:
        with self._database.reading() as session:
            return list(session.scalars(sa.select(ServerRecord.server_id))) == [self.server_id]


def _profiles(connection: sa.Connection) -> Sequence[tuple[str, Profile]]:
    """Of the servers that are alive, with their URLs."""
    columns = ServerRecord.url, ServerRecord.journal, ServerRecord.checkpoints, ServerRecord.base_models
    heard = sa.select(*columns).where(ServerRecord.heard_at > NOW - SILENT_SECONDS)
    return [
        (row.url, Profile(journal=row.journal, checkpoints=row.checkpoints, base_models=row.base_models))
        for row in connection.execute(heard)
    ]
