"""Recovery of sessions: at the start those of an earlier process, later those of other servers and of workers lost."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.naming import listed
from cookhouse.server.leases.takeover import Takeover
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.pool import Pool
from cookhouse.server.recovery.lifecycle import SessionLifecycle
from cookhouse.server.recovery.restoration import Replay, Restoration, Restored, StoredSession
from cookhouse.server.refusals import StorageBusyError
from cookhouse.server.requests.offered_models import is_offered
from cookhouse.server.requests.wiring import Requests
from cookhouse.server.sequencer.queues import LOAD
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.storage.journal import EndSession, Journal

_MAX_NAMED = 3
_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.05


class Leftovers:
    """Lives on the event loop."""

    def __init__(self, journal: Journal) -> None:
        self._commit = journal.commit
        self._reader = journal.reader
        self._folders = journal.folders

    async def end_all(self) -> None:
        """End all sessions: their clients are gone."""
        await self._end(await asyncio.to_thread(self._reader.live_owners))

    async def end_missing(self, offered: Collection[str]) -> None:
        """End those that need a base model which is not offered."""
        await self._end({session_id for session_id, _ in await self._missing(offered)})

    async def check_samplers_only(self) -> None:
        """Refuse to lose the models of the journal, which an engine that only samples cannot bring back.

        Raises:
            InputError: there are such.
        """
        models = await asyncio.to_thread(self._reader.live_models)
        if models:
            raise InputError(
                f"the journal has {len(models)} models that train ({listed(models[:_MAX_NAMED])}), and a server that "
                "only samples would lose them; start without --samplers-only until their clients are done (sessions of "
                "clients that are gone end after --session-minutes), or use another --state-dir"
            )

    async def check_base_models(self, offered: Collection[str]) -> None:
        """Refuse to lose what clients have, where only its base model is not offered.

        Raises:
            InputError: some need another base model.
        """
        missing = await self._missing(offered)
        if not missing:
            return
        names = sorted({name for _, name in missing})
        number = len({session_id for session_id, _ in missing})
        options = " ".join(f"-m {name}" for name in names)
        raise InputError(
            f"{number} sessions that have not ended need {listed(names)}, and this server offers "
            f"{listed(sorted(offered))}; start it with {options} as well, or give these sessions up with "
            "--end-sessions missing"
        )

    async def sweep_shared(self, is_alone: Callable[[], bool]) -> None:
        """Put aside bodies and folders that no live session needs, where no other server has written any of them."""
        await self._commit.sweep(is_alone)
        await asyncio.to_thread(self.sweep_folders, is_alone)

    def sweep_folders(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        """Put aside folders that no live session needs, and delete what was never finished. Blocking.

        Raises:
            StorageError: the journal cannot be read.
        """
        found = self._folders.found()
        if not is_alone():
            return
        try:
            self._folders.sweep(self._needed(), found=found)
        except StorageBusyError:
            raise
        except Exception:  # a row that cannot be decoded may be the one that needs a folder
            _log.exception("rows of the journal cannot be read, and no folder is deleted")

    async def _missing(self, offered: Collection[str]) -> Sequence[tuple[str, str]]:
        needed = await asyncio.to_thread(self._reader.live_base_models)
        return [(session_id, name) for session_id, name in needed if not is_offered(name, offered)]

    async def _end(self, session_ids: Collection[str]) -> None:
        """End sessions, and delete their files: a sweep would put them aside."""
        now = time.time()
        before = await asyncio.to_thread(self._readable_needed)
        for session_id in session_ids:
            self._commit.adopt(await asyncio.to_thread(self._reader.segments, session_id))
        await self._commit.commit(*(EndSession(session_id, now, "interrupted", None) for session_id in session_ids))
        await asyncio.to_thread(self._folders.delete, *(before - await asyncio.to_thread(self._readable_needed)))

    def _needed(self) -> set[Path]:
        """Folders of all live sessions. Blocking. Raises StorageError."""
        needed = self._reader.needed_folders(LOAD)
        return {
            *map(self._folders.state, needed.states),
            *map(self._folders.sampler, needed.samplers),
            *map(self._folders.load, needed.loads),
        }

    def _readable_needed(self) -> set[Path]:
        try:
            return self._needed()
        except StorageBusyError:
            raise
        except Exception:  # of a row that cannot be decoded
            _log.exception("rows of the journal cannot be read; files of sessions that are ended are put aside")
            return set()


class Recovery:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        pool: Pool,
        journal: Journal,
        lifecycle: SessionLifecycle,
        requests: Requests,
        say: Callable[[str], None],
        sequencer: Sequencer,
        sessions: Sessions,
    ) -> None:
        """`say` is given a count of what was restored, once it has run again."""
        self._pool = pool
        self._intake = requests.intake
        self._journal = journal
        self._lifecycle = lifecycle
        self._say = say
        self._sequencer = sequencer
        self._sessions = sessions
        self._replay = Replay(
            base_models=requests.base_models, futures=requests.futures, intake=requests.intake, journal=journal
        )
        self._restoration = Restoration(
            base_models=requests.base_models,
            pool=pool,
            futures=requests.futures,
            intake=requests.intake,
            journal=journal,
            replay=self._replay,
            sequencer=sequencer,
            sessions=sessions,
        )
        self.leftovers = Leftovers(journal)
        self._at_start: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        self._taken: Restored | None = None
        """Of sessions that were taken over, what has not been reported."""
        self._taken_since = 0.0
        """When the first of them was begun; on the clock of `time.monotonic`."""
        self._taking = Takeover(
            self.take_over,
            on_back=sessions.end_aside,
            on_tried=self.report_taken,
            is_over=lambda: False,
        )

    @property
    def is_starting(self) -> bool:
        """True if what an earlier process left still runs again."""
        return self._at_start is not None and not self._at_start.done()

    async def start(self) -> None:
        """Put aside what nothing needs, and bring back what an earlier process left; its requests run again behind it.
        Sessions that cannot be brought back are set aside, and tried again later.

        Raises:
            StorageError: the journal cannot be read.
        """
        await self._journal.commit.sweep()
        began_at, restored, aside = time.monotonic(), Restored(), list[str]()
        await asyncio.to_thread(self.leftovers.sweep_folders)
        owners = await asyncio.to_thread(self._journal.reader.live_owners)
        for session_id, owner in owners.items():
            try:
                restored.add(await self._bring_back(session_id))
            except Exception as error:
                text = "session %s cannot be brought back, and is set aside: %s: %s"
                _log.error(text, session_id, type(error).__name__, error)
                self._sessions.set_aside(session_id, owner)
                aside.append(session_id)
        self._taking.come(aside)
        if restored.num_sessions:
            self._at_start = self._report(restored, began_at, "replay")

    async def _bring_back(self, session_id: str) -> Restored:
        """Waits for a journal that cannot be read now."""
        while True:
            try:
                return await self._restore(session_id)
            except StorageBusyError as error:
                _log.error("a request cannot be read again: %s; trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def take_over(self, session_id: str) -> None:
        """Bring back a session of another server, if it has not ended; its requests run again behind this.

        Raises:
            StorageBusyError: it cannot be read now; nothing was brought back.
            Exception: it cannot be brought back, and nothing was.
        """
        began_at = time.monotonic()
        restored = await self._restore(session_id)
        if self._taken is None:
            self._taken, self._taken_since = restored, began_at
        else:
            self._taken.add(restored)

    async def _restore(self, session_id: str) -> Restored:
        """All of a session or nothing of it. Raises as `take_over`."""
        stored = await asyncio.to_thread(StoredSession.read, session_id, self._journal)
        if stored is None:
            return Restored()
        self._intake.number_from(stored.next_position)
        try:
            return await self._restoration.restore(stored)
        except BaseException:
            if self._sessions.has(session_id):
                session = self._sessions.session(session_id, stored.row.owner)
                for model in session.models.values():
                    self._replay.forget(model)
                self._lifecycle.let_go(session)
            raise

    def run_again(self, gone: LostState) -> int:
        """Have other workers do what one that is lost, or leaves, did since each model's last state; how many requests
        that are.
        """
        num_requests = 0
        for session in self._sessions:
            for model in session.models.values():
                if model.model_id in gone.model_ids:
                    make_jobs = partial(self._replay.after_loss, model)
                    num_requests += self._sequencer.run_again(model, make_jobs, is_loss=gone.is_loss)
            for sampler in session.samplers.values():
                snapshot = sampler.snapshot
                if snapshot is None or not snapshot.is_published or snapshot.has_file:
                    continue
                if snapshot.snapshot_id not in gone.snapshot_ids:
                    continue
                if any(snapshot.snapshot_id in model.snapshots for model in session.models.values()):
                    self._pool.expect(snapshot.snapshot_id)
                else:
                    snapshot.lose(gone.reason)
        return num_requests

    def report_taken(self) -> None:
        """Report the sessions that were taken over since it was last called, all at once."""
        taken, self._taken = self._taken, None
        if taken is not None and taken.num_sessions:
            self._report(taken, self._taken_since, "replay of sessions taken over")

    def cancel(self) -> Sequence[asyncio.Task[None]]:
        """Report nothing more; the tasks to wait for."""
        for task in self._reports:
            task.cancel()
        return [*self._reports, *self._taking.cancel()]

    def _report(self, restored: Restored, began_at: float, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._say_when_done(restored, began_at), name=name)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)
        return task

    async def _say_when_done(self, restored: Restored, began_at: float) -> None:
        """Models that wait for memory are not waited for."""
        waits = self._sequencer.retries.reason
        for model_id, future in restored.waiting:
            while not future.done.is_set() and waits(model_id) is None:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
        while any(not model.is_dropped and waits(model.model_id) is None for model in self._replay.loading()):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)  # nothing reports the end of a session
        self._say(
            f"restored {restored.num_models} models of {restored.num_sessions} sessions, and ran "
            f"{restored.num_requests} requests again, in {time.monotonic() - began_at:.1f} s"
        )
