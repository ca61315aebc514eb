"""The life of sessions: how they begin, and what goes with them when they end."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cookhouse.errors import InputError
from cookhouse.server.leases.leases import Leases
from cookhouse.server.recovery.journaling import Journaling
from cookhouse.server.refusals import GoneError, StorageError
from cookhouse.server.sequencer.futures import Futures, Result
from cookhouse.server.sequencer.samples import Samples
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Session, Sessions
from cookhouse.server.storage.journal import AddSession, EndSession
from cookhouse.server.storage.store.failures import is_cut
from cookhouse.server.storage.store.rows import SessionRow
from cookhouse.server.storage.store.store import Store


class _BegunBeforeError(Exception):
    """A copy of the request has begun another session, at another server or before this one."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id


class SessionLife:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        futures: Futures,
        journal: Journaling | None,
        leases: Leases | None = None,
        samples: Samples,
        sequencer: Sequencer,
        sessions: Sessions,
        store: Store,
    ) -> None:
        self._futures = futures
        self._journal = journal
        self._leases = leases
        self._samples = samples
        self._sequencer = sequencer
        self._sessions = sessions
        self._store = store

    async def begin(
        self,
        owner: str,
        *,
        idempotency_key: str | None,
        display_name: str | None,
        user_metadata: Mapping[str, Any] | None,
        project_id: str | None,
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
        journal = self._journal
        folders = () if journal is None else journal.folders_of(session, self._sequencer.history)
        self._sessions.end(session)
        ended = InputError(f"session {session.session_id} has ended{why}")
        for model in session.models.values():
            self._sequencer.drop_model(model)
        self.drop_samples(session, ended)
        for future in self._futures.unfinished(session.session_id):
            self._futures.finish(future, Result.of_error(ended))
        for sampler in session.samplers.values():
            if sampler.snapshot is not None:
                self._samples.free_snapshot(sampler.snapshot)
        self._futures.start_clock(session.session_id)
        now = time.time()
        if journal is None:
            self._store.finish_session(session.session_id, now, reason=reason, detail=detail)
        else:
            await journal.end_session(EndSession(session.session_id, now, reason, detail), folders)

    def let_go(self, session: Session) -> None:
        """Have a session gone from memory alone: it has not ended, and can be brought back."""
        self._sessions.end(session)
        for model in session.models.values():
            self._sequencer.drop_model(model, has_ended=False)
        snapshots = [sampler.snapshot for sampler in session.samplers.values() if sampler.snapshot is not None]
        for snapshot in snapshots:
            self._samples.free_snapshot(snapshot)
        if self._journal is not None:
            self._journal.states.forget(snapshots)
        self._futures.let_go(session.session_id)

    def drop_samples(self, session: Session, error: InputError) -> None:
        """Fail those of its samples that have no result."""
        if waiting := self._futures.unfinished_samples(session.session_id):
            self._samples.cancel(waiting, error)
