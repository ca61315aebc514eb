"""What is done every few seconds: ends silent sessions, deletes what has expired, writes what is due."""

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Mapping

from cookhouse.server.pool.pool import Pool
from cookhouse.server.recovery.journaling import Journaling
from cookhouse.server.recovery.session_life import SessionLife
from cookhouse.server.refusals import GoneError, StorageError
from cookhouse.server.requests.metering import Metering
from cookhouse.server.requests.sampling import SamplingRequests
from cookhouse.server.sequencer.futures import Futures
from cookhouse.server.sequencer.intake import Intake
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Session, Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.store.store import Store

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class Sweeper:
    """Lives on the event loop; its threads write."""

    def __init__(
        self,
        *,
        pool: Pool,
        checkpoints: Checkpoints,
        futures: Futures,
        intake: Intake,
        journal: Journaling | None,
        metering: Metering,
        sampling: SamplingRequests,
        sequencer: Sequencer,
        session_life: SessionLife,
        sessions: Sessions,
        settings: Settings,
        store: Store,
        ends_silent: bool = True,
    ) -> None:
        """`ends_silent` False: clients are known to live as long as this server does, however silent they are."""
        self._pool = pool
        self._checkpoints = checkpoints
        self._futures = futures
        self._intake = intake
        self._journal = journal
        self._metering = metering
        self._sampling = sampling
        self._sequencer = sequencer
        self._ends_silent = ends_silent
        self._session_life = session_life
        self._sessions = sessions
        self._settings = settings
        self._store = store
        self._writing = threading.Lock()  # held while a thread sweeps the store
        self._is_stopped = False

    async def sweep_forever(self) -> None:
        looking = asyncio.create_task(self._look_forever(), name="sweeper: whether it is awake")
        try:
            while True:
                await asyncio.sleep(self._settings.sweep_seconds)
                try:
                    await self.sweep()
                except Exception:
                    _log.exception("a sweep failed; the next one is in %s s", self._settings.sweep_seconds)
        finally:
            looking.cancel()

    async def _look_forever(self) -> None:
        while True:
            self._sessions.hearing.look(_LOOK_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)

    async def sweep(self) -> None:
        """End silent sessions, delete expired checkpoints, write and forget what is due."""
        self._sessions.hearing.look(_LOOK_SECONDS)
        if self._ends_silent:
            await self._end_silent()
        if time.monotonic() - self._sessions.hearing.awake_since > self._settings.result_seconds:
            self._futures.sweep()
        if self._journal is not None:
            self._journal.states.sweep()
        self._sampling.sweep()
        times = self._intake.taken_times()
        await asyncio.to_thread(self._sweep_store, times, self._pool.weights.urls())

    async def _end_silent(self) -> None:
        for session in self._sessions:
            silent_seconds = self._sessions.silent_seconds(session)
            if self._is_over(session, silent_seconds):
                _log.warning("session %s has not been heard of; freeing its models", session.session_id)
                why = f": its client was not heard of for {silent_seconds:.0f} s; go on from its last checkpoint"
                await self._session_life.end(session, why=why)
            elif silent_seconds > self._settings.silent_seconds:
                error = GoneError(f"session {session.session_id} was silent for {silent_seconds:.0f} s; sample again")
                self._session_life.drop_samples(session, error)

    def _is_over(self, session: Session, silent_seconds: float) -> bool:
        """Whether a session has been silent for too long. What is with the engine then counts as heard of until it is
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

    def stop(self, *, timeout_seconds: float) -> bool:
        """Have no thread begin to sweep the store; whether none is in it any more. Blocking."""
        self._is_stopped = True
        return self._writing.acquire(timeout=timeout_seconds)

    def write_listed(self) -> None:
        """Write what is only listed, if the store can be written now. Blocking."""
        try:
            self._metering.flush()
            self._store.flush()
            self._store.touch_runs(self._intake.taken_times())
        except StorageError as error:
            _log.warning("what is only listed was not written: %s", error)

    def _sweep_store(self, times: Mapping[str, float], files: Collection[str]) -> None:
        with self._writing:
            if self._is_stopped:  # the task that wanted it was cancelled, and this thread began late
                return
            try:
                self._metering.flush()
                self._store.flush()
                self._store.touch_runs(times)
                self._store.sweep_recordings(
                    max_seconds=self._settings.recording_seconds, max_bytes=self._settings.max_recording_bytes
                )
            except StorageError as error:
                _log.warning("what is only listed waits to be written: %s", error)
            self._checkpoints.sweep(files)
