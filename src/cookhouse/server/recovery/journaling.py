"""The journal of a service, wired: what writes and reads it, and what it forgets with a session."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.refusals import StorageError
from cookhouse.server.sequencer.futures import Future, Futures
from cookhouse.server.sequencer.history import History
from cookhouse.server.sequencer.states import States
from cookhouse.server.sessions.sessions import Model, Session
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import DropAnswers, EndSession, GroupCommit, JournalReader, Segments
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.store.store import Store

OFF, FILES = "off", "files"
_log = logging.getLogger(__name__)


class Journaling:
    """Lives on the event loop."""

    def __init__(
        self, state_dir: Path, store: Store, settings: Settings, supervisor: Supervisor, futures: Futures, meter: Meter
    ) -> None:
        """Raises InputError: the place for it cannot be used."""
        url = (state_dir / "journal").absolute().as_uri() if settings.journal == FILES else settings.journal
        segments = Segments(url)
        self.commit = GroupCommit(store, segments, patience_seconds=settings.store_patience_seconds)
        self.reader = JournalReader(store, segments)
        self.folders = JournalFolders(state_dir.absolute())
        self.folders.make()
        self.states = States(
            commit=self.commit,
            folders=self.folders,
            futures=futures,
            meter=meter,
            settings=settings,
            supervisor=supervisor,
        )
        self._endings: set[asyncio.Task[None]] = set()
        """Of sessions whose end is being written."""

    def forget_answer(self, future: Future) -> None:
        """Nobody can ask for a result any more."""
        if future.is_stored:
            self.commit.later(DropAnswers([future.request_id]))

    def folders_of(self, session: Session, history_of: Callable[[Model], History]) -> Sequence[Path]:
        """Folders that go with a session; its published weights are not counted any more."""
        folders = []
        for model in session.models.values():
            history = history_of(model)
            if history.state is not None:
                folders.append(self.folders.state(history.state.state_id))
            folders += [self.folders.load(ran.entry.drawn["id"]) for ran in history.loads()]
        snapshots = [sampler.snapshot for sampler in session.samplers.values() if sampler.snapshot is not None]
        self.states.forget(snapshots)
        return [*folders, *(self.folders.sampler(one.snapshot_id) for one in snapshots if one.has_file)]

    async def end_session(self, end: EndSession, folders: Sequence[Path]) -> None:
        """Write down that a session has ended, and delete its folders then, also where that takes longer than this.

        Raises:
            StorageError: it cannot be written for now.
        """
        ending = asyncio.ensure_future(self._end_session(end, folders))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        await self.commit.flush()
        await asyncio.shield(ending)

    async def _end_session(self, end: EndSession, folders: Sequence[Path]) -> None:
        try:
            await self.commit.keep(end)
        except StorageError as error:  # it goes on at the next start, until nobody is heard of
            _log.warning("the end of session %s was not written: %s", end.session_id, error)
        else:
            await asyncio.to_thread(self.folders.delete, *folders)
