"""Heartbeats of a server, in a thread of their own, so that a busy event loop costs it nothing.

beat ── gone? ──► on_lost: another server has taken over
  ├──► the others ── silent? ──► dropped ──► their sessions claimed ──► on_claimed
  └──► ask: an event loop that answers no more has the server end, too
"""

import faulthandler
import logging
import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from cookhouse.server.leases.members import SILENT_SECONDS, Member, Members
from cookhouse.server.refusals import LeaseLostError, StorageError
from cookhouse.server.storage.store.clock import steady_seconds
from cookhouse.server.storage.store.postgresql import NOW
from cookhouse.server.storage.store.tables import ServerRecord, SessionRecord

BEAT_SECONDS = 1.0
_CLAIM_BEATS = 10
"""Sessions that nobody holds are looked for when a server comes or goes, and each so many beats."""
_STUCK_BEATS = 30
"""A server whose event loop has not run since so many beats answers nobody: another is to have its sessions."""
_log = logging.getLogger(__name__)


class Heartbeats:
    """Writes and reads of a server each second, over a connection that none of its other work can hold up.

    Blocking calls of one thread, for two seconds or so. Each raises StorageError where the database has not answered
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


_BLIND_SECONDS = SILENT_SECONDS / 2
"""Who has not looked for so long knows nothing: the others may have beaten, or been cut off as it was."""


class FailureDetector:
    """Servers that have sent no heartbeat for too long, by what this one sees change and by its own clock alone: a
    database whose clock is set, or that is replaced by one with another, has nobody dropped.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}
        """Of each server, what it said last, and when that was first seen."""
        self._looked_at = float("-inf")

    def note(self, members: Sequence[Member], at: float) -> None:
        """Take note of what is seen at a time, which is not before it was read."""
        before = {} if at - self._looked_at > _BLIND_SECONDS else self._seen
        self._looked_at = at
        self._seen = {
            member.server_id: seen
            if (seen := before.get(member.server_id)) is not None and seen[0] == member.heard_at
            else (member.heard_at, at)
            for member in members
        }

    def seconds(self, server_id: str) -> float:
        """For how long a server had said nothing when it was looked for last."""
        return self._looked_at - self._seen[server_id][1]

    def silent(self) -> Mapping[str, float]:
        """Servers that have not been heard from for too long, with the time of the last beat of each."""
        return {
            server_id: heard_at
            for server_id, (heard_at, at) in self._seen.items()
            if self._looked_at - at > SILENT_SECONDS
        }


class Keeper:
    """Runs the heartbeats of a server, and claims sessions."""

    def __init__(
        self,
        beats: Heartbeats,
        *,
        on_claimed: Callable[[Sequence[str]], None],
        on_change: Callable[[], None],
        on_lost: Callable[[], None],
        ask: Callable[[], None],
    ) -> None:
        """The functions are called in the keeper's thread: with ids of sessions that this server has claimed, when
        servers come or go, when this one has been dropped or is to end, and to have the event loop call `answer`.
        """
        self._heartbeats = beats
        self._on_claimed = on_claimed
        self._on_change = on_change
        self._on_lost = on_lost
        self._ask = ask
        self._failures = FailureDetector()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._heard_at = steady_seconds()
        """Time of this server's last beat, at least."""
        self._known: frozenset[tuple[str, bool]] = frozenset()
        self._num_beats = 0
        self._num_unanswered = 0
        """Beats since the event loop ran: of time that passes while the whole process is stopped it knows nothing."""
        self._may_claim = False
        self._has_claimed = False
        self._is_failing = False
        self.living: Sequence[Member] = ()
        """As of the last beat."""
        self._num_claims = 0
        self.num_told = 0
        """Claims that its listener has taken note of; counted by it."""
        self.is_leaving = False

    @property
    def is_current(self) -> bool:
        """True if no other server can have taken this one for dead."""
        return steady_seconds() - self._heard_at < SILENT_SECONDS

    @property
    def is_claiming(self) -> bool:
        """True if sessions are claimed, or being claimed, that nobody has taken note of."""
        return self.num_told < self._num_claims

    def start(self) -> None:
        self._thread.start()

    def begin_claiming(self) -> None:
        """Claim sessions, from now on. From any thread."""
        self._may_claim = True
        self._wake.set()

    def answer(self) -> None:
        """The event loop runs."""
        self._num_unanswered = 0

    def stop(self) -> None:
        """Blocking, as long as a beat takes."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began_at = steady_seconds()
            self._wake.clear()
            try:
                self._check_loop()
                self._beat(began_at)
                if self._is_failing:
                    _log.warning("the database can be reached again")
                self._is_failing = False
            except LeaseLostError:
                if not self._stopped.is_set():
                    self._on_lost()
                return
            except StorageError as error:
                if not self._is_failing:
                    _log.warning("this server cannot say that it is alive, and tries again: %s", error)
                self._is_failing = True
            except Exception:
                _log.exception("a beat failed")
            if not self._stopped.is_set():
                self._wake.wait(max(0.0, began_at + BEAT_SECONDS - steady_seconds()))

    def _check_loop(self) -> None:
        """Raises LeaseLostError: the event loop does not run, and this server is to write no more beats."""
        if self._num_unanswered >= _STUCK_BEATS:
            _log.error("the event loop has not run for %.0f s, and this server ends", _STUCK_BEATS * BEAT_SECONDS)
            faulthandler.dump_traceback()
            raise LeaseLostError("its event loop does not run")
        self._num_unanswered += 1
        self._ask()

    def _beat(self, began_at: float) -> None:
        living = self._heartbeats.beat()
        if living is None:
            raise LeaseLostError("this server has been taken for dead")
        self._heard_at = began_at
        self._failures.note(living, steady_seconds())
        if silent := self._failures.silent():
            self._heartbeats.drop(silent)
            living = self._look()
        if self._may_claim and not self._has_claimed and not self.is_leaving:
            self._heartbeats.begin_claiming()
            living = self._look()
        self.living = [replace(one, silent_seconds=self._failures.seconds(one.server_id)) for one in living]
        known = frozenset((member.server_id, member.is_leaving) for member in living)
        has_changed = known != self._known
        is_due = has_changed or not self._has_claimed or self._num_beats % _CLAIM_BEATS == 0
        if is_due and self._may_claim and not self.is_leaving:
            self._claim(living)
            self._has_claimed = True
        self._known = known
        self._num_beats += 1
        if has_changed:
            self._on_change()

    def _look(self) -> Sequence[Member]:
        living = self._heartbeats.living()
        self._failures.note(living, steady_seconds())
        return living

    def _claim(self, living: Sequence[Member]) -> None:
        self._num_claims += 1
        claimed: Collection[str] = ()
        try:
            claimed = self._heartbeats.claim(living)
        finally:
            self._on_claimed(list(claimed))
