"""An open journal: what writes it, what reads it, and the folders that its rows name."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from cookhouse.server.refusals import StorageError
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.journal.group_commit import GroupCommit
from cookhouse.server.storage.journal.rows import Answer, Entry, State
from cookhouse.server.storage.journal.segments import DamagedBodyError, Place, SegmentFiles
from cookhouse.server.storage.store.row_sums import check_row
from cookhouse.server.storage.store.rows import FINISHED, CheckpointRow, RunRow, SamplerRow, SessionRow
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import (
    AnswerRecord,
    Base,
    BodyColumns,
    CheckpointRecord,
    EntryRecord,
    RunRecord,
    SamplerRecord,
    SessionRecord,
    StateRecord,
    rows_of,
)

Kept = TypeVar("Kept", Entry, Answer, State, SessionRow, RunRow, SamplerRow)
OFF, FILES = "off", "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Names of folders."""

    states: Collection[str]
    samplers: Collection[str]
    loads: Collection[str]


class JournalReader:
    """Short, blocking calls, from any thread, about all tenants. Each raises StorageError where it cannot be read."""

    def __init__(self, store: Store, segments: SegmentFiles) -> None:
        self._reading: Callable[[], AbstractContextManager[Session]] = store.database.reading
        self._segments = segments

    @contextmanager
    def at_once(self) -> Iterator["JournalReader"]:
        """A reader of one connection, for several calls of one thread: each would look for one."""
        with self._reading() as session:
            reader = copy(self)
            reader._reading = lambda: nullcontext(session)
            yield reader

    def live_owners(self) -> Mapping[str, str]:
        """Owners of sessions that have not ended, by id, oldest first. Reads no column that may be damaged."""
        query = sa.select(SessionRecord.session_id, SessionRecord.owner).where(SessionRecord.finished_at.is_(None))
        with self._reading() as session:
            return {row.session_id: row.owner for row in session.execute(query.order_by(SessionRecord.created_at))}

    def live_models(self) -> Sequence[str]:
        """Ids of the models that live sessions train."""
        with self._reading() as session:
            return sorted(session.scalars(sa.select(RunRecord.model_id).where(_is_live(RunRecord), _is_trained())))

    def live_base_models(self) -> Sequence[tuple[str, str]]:
        """Ids of live sessions, each with a base model that it has a model or a sampling client of."""
        runs = sa.select(RunRecord.session_id, RunRecord.base_model).where(_is_live(RunRecord), _is_trained())
        samplers = sa.select(SamplerRecord.session_id, SamplerRecord.base_model).where(
            _is_live(SamplerRecord), SamplerRecord.seq_id.is_not(None)
        )
        with self._reading() as session:
            return [(row.session_id, row.base_model) for row in session.execute(sa.union(runs, samplers))]

    def live_session(self, session_id: str) -> SessionRow | None:
        """None: it has ended, or never was."""
        query = sa.select(SessionRecord).where(SessionRecord.session_id == session_id)
        return next(iter(self._select(SessionRow, query.where(SessionRecord.finished_at.is_(None)))), None)

    def needed_folders(self, load: str) -> "Needed":
        """Folders that live sessions need; `load`: the kind of entries that have loaded a checkpoint."""
        live = sa.select(SessionRecord.session_id).where(SessionRecord.finished_at.is_(None))
        states = sa.select(StateRecord.state_id).where(StateRecord.session_id.in_(live))
        samplers = sa.select(SamplerRecord.snapshot_id).where(SamplerRecord.session_id.in_(live))
        entries = sa.select(EntryRecord.drawn).where(EntryRecord.session_id.in_(live), EntryRecord.kind == load)
        with self._reading() as session:
            return Needed(
                states=set(session.scalars(states)),
                samplers={name or "" for name in session.scalars(samplers.where(SamplerRecord.has_file))},
                loads={drawn["id"] for drawn in session.scalars(entries)},
            )

    def runs(self, session_id: str) -> Sequence[RunRow]:
        """Oldest first."""
        query = sa.select(RunRecord).where(RunRecord.session_id == session_id)
        return self._select(RunRow, query.order_by(RunRecord.created_at))

    def samplers(self, session_id: str) -> Sequence[SamplerRow]:
        """Oldest first."""
        query = sa.select(SamplerRecord).where(SamplerRecord.session_id == session_id)
        return self._select(SamplerRow, query.order_by(SamplerRecord.created_at))

    def entries(self, session_id: str) -> Sequence[Entry]:
        """By position."""
        query = sa.select(EntryRecord).where(EntryRecord.session_id == session_id)
        return self._select(Entry, query.order_by(EntryRecord.position))

    def states(self, session_id: str) -> Sequence[State]:
        return self._select(State, sa.select(StateRecord).where(StateRecord.session_id == session_id))

    def newest_checkpoint(self, model_id: str) -> str | None:
        """The path of the newest training state that a model has saved, if there is one."""
        at = CheckpointRecord.expires_at
        query = rows_of(CheckpointRow).where(CheckpointRecord.model_id == model_id, CheckpointRecord.kind == "weights")
        query = query.where(at.is_(None) | (at > time.time())).order_by(CheckpointRecord.created_at.desc()).limit(1)
        with self._reading() as session:
            found = session.execute(query).mappings().first()
        return None if found is None else CheckpointRow(**found).path

    def segments(self, session_id: str) -> set[str]:
        """Segments in which its entries and answers lie."""
        names: set[str] = set()
        with self._reading() as session:
            for record in (EntryRecord, AnswerRecord):
                query = sa.select(record.segment).where(record.session_id == session_id, record.segment.is_not(None))
                names.update(filter(None, session.scalars(query)))
        return names

    def answers(
        self, session_id: str, on_damaged: Callable[[str, DamagedBodyError], None] | None = None
    ) -> Sequence[Answer]:
        """`on_damaged` is called with those that are not what was written, which are left out.

        Raises:
            DamagedBodyError: there is such a one, and no `on_damaged`.
        """
        query = sa.select(AnswerRecord).where(AnswerRecord.session_id == session_id).options(undefer(AnswerRecord.body))
        answers = []
        with self._reading() as session:
            for record in session.scalars(query):
                try:
                    answers.append(_from_record(Answer, record, body=self._body(record)))
                except DamagedBodyError as error:
                    if on_damaged is None:
                        raise
                    on_damaged(record.request_id, error)
        return answers

    def body(self, request_id: str) -> bytes:
        """Of an entry.

        Raises:
            DamagedBodyError: it is not what was written.
        """
        with self._reading() as session:
            query = sa.select(EntryRecord).where(EntryRecord.request_id == request_id)
            record = session.scalars(query.options(undefer(EntryRecord.body))).one_or_none()
            if record is None:
                raise StorageError(f"the service's journal has no request {request_id!r}")
            return self._body(record)

    def _body(self, record: BodyColumns) -> bytes:
        place = Place(
            segment=record.segment,
            offset=record.body_offset,
            num_bytes=record.num_body_bytes,
            crc=record.body_crc,
        )
        return self._segments.read(place, record.body)

    def _select(self, kind: type[Kept], query: sa.Select[Any]) -> Sequence[Kept]:
        with self._reading() as session:
            return [_from_record(kind, record) for record in session.scalars(query)]


def _is_live(record: type[RunRecord] | type[SamplerRecord]) -> sa.ColumnElement[bool]:
    return record.session_id.in_(sa.select(SessionRecord.session_id).where(SessionRecord.finished_at.is_(None)))


def _is_trained() -> sa.ColumnElement[bool]:
    """Condition that the journal has all that makes a model again."""
    entries = sa.select(EntryRecord.model_id).where(EntryRecord.kind != FINISHED)
    return RunRecord.model_id.in_(sa.select(StateRecord.model_id)) | RunRecord.model_id.in_(entries)


def _from_record(kind: type[Kept], record: Base, **given: Any) -> Kept:
    check_row(record)
    names = [field.name for field in fields(kind) if field.name not in given]
    return kind(**{name: getattr(record, name) for name in names}, **given)


class Journal:
    """Of a server, or of several that share a folder and a store."""

    def __init__(self, folder: Path, store: Store, settings: Settings) -> None:
        """Raises InputError: the place for bodies cannot be used."""
        url = (folder / "journal").absolute().as_uri() if settings.journal == FILES else settings.journal
        segments = SegmentFiles(url)
        self.commit = GroupCommit(store, segments, patience_seconds=settings.store_patience_seconds)
        self.reader = JournalReader(store, segments)
        self.folders = JournalFolders(folder.absolute())
        self.folders.make()
