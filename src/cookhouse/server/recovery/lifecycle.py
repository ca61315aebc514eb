"""Lifecycle of sessions: they begin, fall silent, and end, with all that is theirs."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cookhouse.errors import InputError
from cookhouse.server.leases.leases import Leases
from cookhouse.server.refusals import GoneError, StorageError
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Session, Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import AddSession, EndSession, Journal
from cookhouse.server.storage.storage import Storage
from cookhouse.server.storage.store.failures import is_cut
from cookhouse.server.storage.store.rows import SessionRow

_log = logging.getLogger(__name__)


class _BegunBeforeError(Exception):
    """A copy of the request has begun another session, at another server or before this one."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id


class SessionLifecycle:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        leases: Leases | None = None,
        sequencer: Sequencer,
        sessions: Sessions,
        settings: Settings,
        storage: Storage,
    ) -> None:
        self._futures = sequencer.futures
        self._journal = storage.journal
        self._leases = leases
        self._samples = sequencer.samples
        self._sequencer = sequencer
        self._sessions = sessions
        self._settings = settings
        self._store = storage.store
        self._endings: set[asyncio.Task[None]] = set()
        """Of sessions whose end is being written."""

    async def begin(
        self,
        owner: str,
        *,
        idempotency_key: str | None,
        display_name: str | None,
        user_metadata: Mapping[str, Any] | None,
        project_id: str | None,
        sdk_version: str | None,
    ) -> Session:
        """A session, which is on the disk; a copy of a request gets that of the first one.

        Raises:
            StorageError: it cannot be written; there is none.
        """
        session, is_new = self._sessions.begin(owner, idempotency_key)
        if is_new:
            row = SessionRow(
                session_id=session.session_id,
                owner=owner,
                created_at=time.time(),
                display_name=display_name,
                user_metadata=dict(user_metadata or {}),
                project_id=project_id,
                sdk_version=sdk_version,
                idempotency_key=idempotency_key,
                server_id=None if self._leases is None else self._leases.server_id,
            )
            session.writing = asyncio.ensure_future(self._write(session, row))
        try:
            if session.writing is not None:
                await asyncio.shield(session.writing)
        except _BegunBeforeError as error:
            return replace(session, session_id=error.session_id)
        return session

    async def _write(self, session: Session, row: SessionRow) -> None:
        if self._journal is None:
            self._store.add_session(row)
            return
        try:
            if self._leases is None:
                await self._journal.commit.commit(AddSession(row))
            elif (known := await asyncio.to_thread(self._leases.members.add_session, row)) != row.session_id:
                raise _BegunBeforeError(known)
        except BaseException as error:
            self._sessions.end(session)
            if self._leases is not None and isinstance(error, StorageError) and is_cut(error):
                self._leases.look_for(session.session_id)
            raise

    async def finish(self, session_id: str, owner: str, *, reason: str | None, detail: str | None) -> None:
        """End a session at its client's word; one that has ended already is left as it is."""
        try:
            session = self._sessions.session(session_id, owner)
        except GoneError:
            if self._journal is not None:  # its end may still wait to be written
                await self._journal.commit.flush()
            return
        await self.end(session, reason=reason, detail=detail)

    async def end_all(self, reason: str) -> None:
        """End all sessions, whose clients are gone."""
        for session in self._sessions:
            await self.end(session, reason=reason)

    async def end(
        self, session: Session, *, reason: str | None = None, detail: str | None = None, why: str = ""
    ) -> None:
        """Free a session's models and snapshots; what has no result fails now, also where it is with the engine. `why`
        is said with it.
        """
        folders = self._folders_of(session)
        self._sessions.end(session)
        ended = InputError(f"session {session.session_id} has ended{why}")
        for model in session.models.values():
            self._sequencer.drop_model(model)
        self.drop_samples(session, ended)
        for future in self._futures.unfinished(session.session_id):
            self._futures.finish(future, Result.of_error(ended))
        self._free_snapshots(session)
        self._futures.start_clock(session.session_id)
        now = time.time()
        if self._journal is None:
            self._store.finish_session(session.session_id, now, reason=reason, detail=detail)
            return
        end = EndSession(session.session_id, now, reason, detail)
        ending = asyncio.ensure_future(self._write_end(self._journal, end, folders))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        await self._journal.commit.flush()
        await asyncio.shield(ending)  # it goes on also where this is canceled

    def _folders_of(self, session: Session) -> Sequence[Path]:
        """Folders that go with a session; its published weights are not counted any more."""
        if self._journal is None:
            return ()
        own, folders = self._journal.folders, []
        for model in session.models.values():
            history = self._sequencer.history(model)
            if history.state is not None:
                folders.append(own.state(history.state.state_id))
            folders += [own.load(ran.entry.drawn["id"]) for ran in history.loads()]
        self._forget_files(session)
        return [*folders, *(own.sampler(one.snapshot_id) for one in session.snapshots() if one.has_file)]

    async def _write_end(self, journal: Journal, end: EndSession, folders: Sequence[Path]) -> None:
        try:
            await journal.commit.keep(end)
        except StorageError as error:  # it goes on at the next start, until every session is silent
            _log.warning("the end of session %s was not written: %s", end.session_id, error)
        else:
            await asyncio.to_thread(journal.folders.delete, *folders)

    def let_go(self, session: Session) -> None:
        """Have a session gone from memory alone: it has not ended, and can be brought back."""
        self._sessions.end(session)
        for model in session.models.values():
            self._sequencer.drop_model(model, has_ended=False)
        self._free_snapshots(session)
        self._forget_files(session)
        self._futures.let_go(session.session_id)

    async def end_silent(self) -> None:
        """End sessions that have been silent for too long, and drop the samples of those that are for a while."""
        for session in self._sessions:
            silent_seconds = self._sessions.silent_seconds(session)
            if self._is_over(session, silent_seconds):
                _log.warning("session %s has not been heard of; freeing its models", session.session_id)
                why = f": its client was not heard of for {silent_seconds:.0f} s; go on from its last checkpoint"
                await self.end(session, why=why)
            elif silent_seconds > self._settings.silent_seconds:
                error = GoneError(f"session {session.session_id} was silent for {silent_seconds:.0f} s; sample again")
                self.drop_samples(session, error)

    def _is_over(self, session: Session, silent_seconds: float) -> bool:
        """True if a session has been silent for too long. What is with the engine then counts as contact until it is
        done, and its queue does not: a dead client's would run on to its end.
        """
        if silent_seconds <= self._settings.session_seconds:
            session.outlasting = None
            return False
        running = frozenset[object]().union(*map(self._sequencer.running, session.models.values()))
        session.outlasting = running if session.outlasting is None else session.outlasting & running
        now = time.monotonic()
        if session.outlasting:
            session.worked_at = now
        return now - session.worked_at > self._settings.session_seconds

    def drop_samples(self, session: Session, error: InputError) -> None:
        """Fail those of its samples that have no result."""
        if waiting := self._futures.unfinished_samples(session.session_id):
            self._samples.cancel(waiting, error)

    def _free_snapshots(self, session: Session) -> None:
        for snapshot in session.snapshots():
            self._samples.free_snapshot(snapshot)

    def _forget_files(self, session: Session) -> None:
        if self._sequencer.sampler_files is not None:
            self._sequencer.sampler_files.forget(session.snapshots())
