"""Store of sessions, training runs, samplers, checkpoints, and of what was used of the server.

Sessions, runs and samplers are kept so that they can be listed, and no request waits for that: such rows are recorded
in memory, and written before the next list is read, with the next checkpoint, or by `flush`. Every query asks for an
owner.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from cookhouse.errors import InputError
from cookhouse.server.storage.store.clock import Clock, SharedTime
from cookhouse.server.storage.store.database import Database
from cookhouse.server.storage.store.row_sums import add_new, check_row
from cookhouse.server.storage.store.rows import (
    CheckpointKind,
    CheckpointRow,
    RecordingRow,
    RunRow,
    SamplerRow,
    SessionRow,
)
from cookhouse.server.storage.store.tables import (
    CheckpointRecord,
    RecordingRecord,
    Row,
    RunRecord,
    SamplerRecord,
    SessionRecord,
    UsageRecord,
    from_record,
    rows_of,
)
from cookhouse.server.storage.store.usage import Usage
from cookhouse.server.storage.store.write_ahead import log_damage

_MAX_NAMES = 500
"""In one query."""
_AMOUNTS = tuple(field.name for field in fields(Usage))
_INSERTS: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


Also = Callable[[Session, CheckpointRow], None]
"""What is written in the transaction of a checkpoint."""


class Store:
    """Short, blocking calls, from any thread."""

    def __init__(self, database: Path | str, clock: Clock | None = None, *, is_shared: bool = False) -> None:
        """Open or make a database, as `Database` does. Raises as that."""
        self.database = Database(database, is_shared=is_shared)
        self._shared_time = SharedTime(self.database.time()) if is_shared else None
        self.clock = clock or (Clock() if self._shared_time is None else Clock(self._shared_time))
        self._deleted: set[str] = set()
        """Checkpoints whose rows could not be deleted yet."""

    def close(self) -> None:
        """Let go of the database; what has not been flushed is lost."""
        self.database.close()

    def flush(self) -> None:
        """Write the rows that have been recorded.

        Raises:
            StorageError: they cannot be written now, and are kept for the next time.
        """
        self.database.flush()

    def note_time(self, now: float) -> None:
        """Of the database's clock, where servers share it: theirs may be set wrong, and delete what others have."""
        assert self._shared_time is not None
        self._shared_time.note(now)

    def check_fence(self) -> None:
        """Raises LeaseLostError: another server writes in place of this one."""
        with self.database.transaction():
            pass

    def damage(self) -> str | None:
        """Fault of the database; None if there is none."""
        return self.database.damage()

    # Sessions, runs and samplers: recorded when made, listed later.

    def add_session(self, row: SessionRow) -> None:
        self._record(row)

    def finish_session(
        self, session_id: str, finished_at: float, *, reason: str | None = None, detail: str | None = None
    ) -> None:
        wanted = sa.update(SessionRecord).where(
            SessionRecord.session_id == session_id, SessionRecord.finished_at.is_(None)
        )
        values = wanted.values(finished_at=finished_at, finish_reason=reason, finish_detail=detail)
        self.database.record(lambda session: session.execute(values))

    def set_session_project(self, session_id: str, project_id: str) -> None:
        wanted = sa.update(SessionRecord).where(SessionRecord.session_id == session_id)
        with self.database.writing() as session:
            session.execute(wanted.values(project_id=project_id))

    def session_storage(self, session_id: str, owner: str) -> tuple[int, int]:
        """Number of checkpoints of a session's runs, and their bytes."""
        query = (
            sa.select(sa.func.count(), _total(CheckpointRecord.size_bytes))
            .join(RunRecord, RunRecord.model_id == CheckpointRecord.model_id)
            .where(RunRecord.session_id == session_id, CheckpointRecord.owner == owner, self._is_kept())
        )
        with self.database.reading() as session:
            count, num_bytes = session.execute(query).one()
        return count, num_bytes

    def sessions(self, owner: str, *, limit: int | None, offset: int) -> Sequence[SessionRow]:
        """Newest first."""
        query = rows_of(SessionRow).where(SessionRecord.owner == owner).order_by(SessionRecord.created_at.desc())
        return self._select(SessionRow, query.limit(limit).offset(offset))

    def session(self, session_id: str, owner: str) -> SessionRow | None:
        query = rows_of(SessionRow).where(SessionRecord.session_id == session_id, SessionRecord.owner == owner)
        return self._first(SessionRow, query)

    def sessions_with_ids(self, session_ids: Sequence[str]) -> Mapping[str, SessionRow]:
        """These sessions, of whichever tenant, by id."""
        query = rows_of(SessionRow).where(SessionRecord.session_id.in_(session_ids))
        return {row.session_id: row for row in self._select(SessionRow, query)}

    def add_run(self, row: RunRow) -> None:
        self._record(row)

    def touch_runs(self, last_request_at: Mapping[str, float]) -> None:
        if not last_request_at:
            return
        with self.database.writing() as session:
            for model_id, time in last_request_at.items():
                wanted = sa.update(RunRecord).where(RunRecord.model_id == model_id)
                session.execute(wanted.values(last_request_at=time))

    def runs(self, owner: str, *, limit: int, offset: int) -> tuple[Sequence[RunRow], int]:
        """One page of a tenant's runs, newest first, and how many there are in all."""
        query = rows_of(RunRow).where(RunRecord.owner == owner)
        query = query.order_by(RunRecord.created_at.desc(), RunRecord.model_id)
        rows = self._select(RunRow, query.limit(limit).offset(offset))
        return rows, self._count(RunRecord.owner == owner)

    def run(self, model_id: str, owner: str) -> RunRow | None:
        return self._first(RunRow, rows_of(RunRow).where(RunRecord.model_id == model_id, RunRecord.owner == owner))

    def has_run(self, model_id: str) -> bool:
        """True if there is one, whosever it is."""
        return self._first(RunRow, rows_of(RunRow).where(RunRecord.model_id == model_id)) is not None

    def session_runs(self, session_id: str, owner: str) -> Sequence[RunRow]:
        query = rows_of(RunRow).where(RunRecord.session_id == session_id, RunRecord.owner == owner)
        return self._select(RunRow, query.order_by(RunRecord.created_at))

    def add_sampler(self, row: SamplerRow) -> None:
        self._record(row)

    def session_samplers(self, session_id: str, owner: str) -> Sequence[SamplerRow]:
        query = rows_of(SamplerRow).where(SamplerRecord.session_id == session_id, SamplerRecord.owner == owner)
        return self._select(SamplerRow, query.order_by(SamplerRecord.created_at))

    # Sampled sequences, to be trained on: kept for a day, as long as their session lives.

    def add_recording(self, row: RecordingRow) -> None:
        self._record(row)

    def recordings(
        self, session_id: str, owner: str, sequence_ids: Collection[str], *, max_bytes: int
    ) -> Sequence[RecordingRow]:
        """Recordings of a session with these ids.

        Raises:
            InputError: together they have more bytes.
            StorageError: one is not what was written.
        """
        of_session = (RecordingRecord.session_id == session_id) & (RecordingRecord.owner == owner)
        rows: list[RecordingRow] = []
        names, num_bytes = sorted(sequence_ids), 0
        self.database.try_flush()
        for start in range(0, len(names), _MAX_NAMES):
            wanted = of_session & RecordingRecord.sequence_id.in_(names[start : start + _MAX_NAMES])
            with self.database.reading() as session:
                num_bytes += session.execute(sa.select(_total(RecordingRecord.num_bytes)).where(wanted)).scalar_one()
            if num_bytes > max_bytes:
                raise InputError(f"the recorded sequences that it names have over {max_bytes} bytes; send fewer datums")
            with self.database.reading() as session:
                for record in session.scalars(sa.select(RecordingRecord).where(wanted)):
                    check_row(record)
                    rows.append(from_record(RecordingRow, record))
        return rows

    def sweep_recordings(self, *, max_seconds: float, max_bytes: int) -> None:
        """Delete those that are too old or whose sessions have ended, and the oldest beyond so many bytes."""
        is_ended = RecordingRecord.session_id.in_(
            sa.select(SessionRecord.session_id).where(SessionRecord.finished_at.is_not(None))
        )
        at = RecordingRecord.created_at
        bytes_since = sa.func.sum(RecordingRecord.num_bytes).over(order_by=at.desc()).label("bytes_since")
        since = sa.select(at.label("at"), bytes_since).subquery()
        newest_beyond = sa.select(sa.func.max(since.c.at)).where(since.c.bytes_since > max_bytes)
        with self.database.reading() as session:
            if session.execute(sa.select(RecordingRecord.sequence_id).limit(1)).first() is None:
                return
            beyond = session.execute(newest_beyond).scalar_one()
        made_before = self.clock.over() - max_seconds
        if beyond is not None:
            made_before = max(made_before, beyond)
        with self.database.writing() as session:
            session.execute(sa.delete(RecordingRecord).where(is_ended | (at <= made_before)))

    # What was used: added up by session, and kept when that has ended.

    def add_usage(self, used: Mapping[tuple[str, str], Usage]) -> None:
        """Add what sessions have used, by owner and session, all or nothing of it.

        Raises:
            StorageError: nothing was written.
        """
        if not used:
            return
        values = [
            {"session_id": session_id, "owner": owner, **asdict(usage)}
            for (owner, session_id), usage in sorted(used.items(), key=lambda one: one[0][1])  # or servers may deadlock
        ]
        with self.database.transaction() as connection:
            new = _INSERTS[connection.dialect.name](UsageRecord)
            sums = {name: getattr(UsageRecord, name) + new.excluded[name] for name in _AMOUNTS}
            connection.execute(new.on_conflict_do_update(index_elements=["session_id"], set_=sums), values)

    def session_usage(self, session_id: str, owner: str) -> Usage:
        with self.database.reading() as session:
            record = session.get(UsageRecord, session_id)
            return Usage() if record is None or record.owner != owner else from_record(Usage, record)

    def usage_by_owner(self) -> Mapping[str, Usage]:
        """Of every tenant: for whoever runs the server."""
        sums = [_total(getattr(UsageRecord, name)).label(name) for name in _AMOUNTS]
        with self.database.reading() as session:
            rows = session.execute(sa.select(UsageRecord.owner, *sums).group_by(UsageRecord.owner)).mappings()
            return {row["owner"]: Usage(**{name: row[name] for name in _AMOUNTS}) for row in rows}

    # Checkpoints. One that has expired is treated as deleted, also before it is.

    def put_checkpoint(self, row: CheckpointRow, *, overwrite: bool, also: Also | None = None) -> CheckpointRow | None:
        """Add a checkpoint, and what is `also` to be written, all or nothing of it; returns the one it replaces.

        Raises:
            InputError: the name is taken and `overwrite` is false.
            StorageError: it cannot be written.
        """
        with self.database.writing() as session:
            same = sa.select(CheckpointRecord).filter_by(model_id=row.model_id, kind=row.kind, name=row.name)
            replaced = session.scalars(same).first()
            row_before = None if replaced is None else from_record(CheckpointRow, replaced)
            if replaced is not None:
                is_expired = self.clock.is_over(replaced.expires_at)
                is_deleted = replaced.checkpoint_id in self._deleted
                if not (overwrite or is_expired or is_deleted):
                    raise InputError(f"{row.path} exists; save under another name, delete it, or pass overwrite")
                session.delete(replaced)
                session.flush()  # before the insertion, whose name is the same
            session.add(CheckpointRecord(**asdict(row)))
            if also is not None:
                also(session, row)
        return row_before

    def checkpoint(self, model_id: str, kind: str, name: str, owner: str) -> CheckpointRow | None:
        """One that a tenant may read: its own, or a published one."""
        query = rows_of(CheckpointRow).filter_by(model_id=model_id, kind=kind, name=name)
        is_readable = (CheckpointRecord.owner == owner) | CheckpointRecord.is_public
        return self._first(CheckpointRow, query.where(is_readable, self._is_kept()))

    def checkpoint_named(self, model_id: str, kind: str, name: str) -> CheckpointRow | None:
        """Whosever it is, also one that has expired: what `put_checkpoint` would replace."""
        return self._first(CheckpointRow, rows_of(CheckpointRow).filter_by(model_id=model_id, kind=kind, name=name))

    def checkpoint_with_id(self, checkpoint_id: str) -> CheckpointRow | None:
        """Whosever it is; an id is made by the server, and no client's text may be one."""
        query = rows_of(CheckpointRow).filter_by(checkpoint_id=checkpoint_id)
        return None if checkpoint_id in self._deleted else self._first(CheckpointRow, query)

    def checkpoints(
        self,
        owner: str,
        *,
        model_id: str | None = None,
        kinds: Collection[CheckpointKind] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[Sequence[CheckpointRow], int]:
        """One page of a tenant's checkpoints, newest first, and how many there are in all. `kinds` None: of any."""
        wanted = (CheckpointRecord.owner == owner) & self._is_kept()
        if kinds is not None:
            wanted &= CheckpointRecord.kind.in_(kinds)
        if model_id is not None:
            wanted &= CheckpointRecord.model_id == model_id
        query = rows_of(CheckpointRow).where(wanted).order_by(CheckpointRecord.created_at.desc())
        return self._select(CheckpointRow, query.limit(limit).offset(offset)), self._count(wanted)

    def every_checkpoint(self) -> Sequence[CheckpointRow]:
        """Checkpoints of every tenant, oldest first: for whoever owns the database, never for a client."""
        query = rows_of(CheckpointRow).where(self._is_kept()).order_by(CheckpointRecord.created_at)
        return self._select(CheckpointRow, query)

    def newest_checkpoints(self, owner: str | None, *, limit: int) -> Sequence[CheckpointRow]:
        """Newest first; `owner` None: of every tenant, for whoever runs the server."""
        wanted = self._is_kept() if owner is None else (CheckpointRecord.owner == owner) & self._is_kept()
        query = rows_of(CheckpointRow).where(wanted).order_by(CheckpointRecord.created_at.desc())
        return self._select(CheckpointRow, query.limit(limit))

    def checkpoint_totals(self) -> Mapping[str, tuple[int, int]]:
        """Number and bytes, by owner: of every tenant, for whoever runs the server."""
        query = sa.select(CheckpointRecord.owner, sa.func.count(), _total(CheckpointRecord.size_bytes))
        with self.database.reading() as session:
            rows = session.execute(query.where(self._is_kept()).group_by(CheckpointRecord.owner))
            return {owner: (count, num_bytes) for owner, count, num_bytes in rows}

    def set_checkpoint_expiry(self, checkpoint_id: str, expires_at: float | None) -> None:
        self._change_checkpoint(checkpoint_id, expires_at=expires_at)

    def set_checkpoint_public(self, checkpoint_id: str, is_public: bool) -> None:
        self._change_checkpoint(checkpoint_id, is_public=is_public)

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Forget a checkpoint, also if its row cannot be deleted now; again does nothing more.

        Raises:
            StorageError: as `flush`; the row must be deleted again.
        """
        self._deleted.add(checkpoint_id)
        self.delete_checkpoint_row(checkpoint_id)
        self._deleted.discard(checkpoint_id)

    def delete_checkpoint_row(self, checkpoint_id: str) -> None:
        """Forget a checkpoint if its row can be deleted now.

        Raises:
            StorageError: it cannot; the checkpoint stays.
        """
        with self.database.writing() as session:
            session.execute(sa.delete(CheckpointRecord).where(CheckpointRecord.checkpoint_id == checkpoint_id))

    def expired_checkpoints(self) -> Sequence[CheckpointRow]:
        is_over = CheckpointRecord.expires_at <= self.clock.over()
        return self._select(CheckpointRow, rows_of(CheckpointRow).where(is_over))

    def checkpoint_ids(self) -> set[str]:
        """Of every checkpoint that has not been deleted, also those that have expired."""
        with self.database.reading() as session:
            return set(session.scalars(sa.select(CheckpointRecord.checkpoint_id))) - self._deleted

    def _change_checkpoint(self, checkpoint_id: str, **values: float | None) -> None:
        wanted = sa.update(CheckpointRecord).where(CheckpointRecord.checkpoint_id == checkpoint_id)
        with self.database.writing() as session:
            session.execute(wanted.values(**values))

    def _record(self, row: SessionRow | RunRow | SamplerRow | RecordingRow) -> None:
        self.database.record(lambda session: add_new(session, row))

    def _select(self, kind: type[Row], query: sa.Select[Any]) -> Sequence[Row]:
        if kind is not CheckpointRow:  # those are never recorded for later
            self.database.try_flush()
        with self.database.reading() as session:
            found = session.execute(query)
            names = tuple(found.keys())
            return [kind(**dict(zip(names, row, strict=True))) for row in found]

    def _first(self, kind: type[Row], query: sa.Select[Any]) -> Row | None:
        return next(iter(self._select(kind, query)), None)

    def _count(self, wanted: sa.ColumnElement[bool]) -> int:
        with self.database.reading() as session:
            return session.execute(sa.select(sa.func.count()).where(wanted)).scalar_one()

    def _is_kept(self) -> sa.ColumnElement[bool]:
        is_alive = CheckpointRecord.expires_at.is_(None) | (CheckpointRecord.expires_at > self.clock.over())
        return is_alive & CheckpointRecord.checkpoint_id.not_in(tuple(self._deleted))


def _total(column: Any) -> sa.ColumnElement[Any]:
    """A sum of the column's own type: some databases make it another."""
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), column.type)


def open_own(file: Path) -> Store:
    """The database in a state folder that the caller has locked, which is whole.

    Raises:
        InputError: it is not what was written, or `Database` cannot open it.
    """
    try:
        damage = log_damage(file)
    except OSError:  # opening it says why
        damage = None
    if damage is not None:
        raise InputError(
            f"{file}-wal, where the newest rows of {file} lie, is damaged: {damage}. Put a backup of the state folder "
            f"in its place; or give up what was written last with: sqlite3 {file} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
    store = Store(file)
    damage = store.database.damage(with_indexes=True)
    if damage is not None:
        store.close()
        raise InputError(f"{file} is not what was written: {damage}")
    return store
