"""Sweeps, every few seconds: silent sessions end, what has expired is deleted, and what is due is written."""

import asyncio
import logging
import threading
import time
from collections.abc import Collection, Mapping

from cookhouse.server.pool.pool import Pool
from cookhouse.server.recovery.lifecycle import SessionLifecycle
from cookhouse.server.refusals import StorageError
from cookhouse.server.requests.wiring import Requests
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.storage import Storage

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0


class Sweeper:
    """Lives on the event loop; its threads write."""

    def __init__(
        self,
        *,
        pool: Pool,
        lifecycle: SessionLifecycle,
        requests: Requests,
        sessions: Sessions,
        settings: Settings,
        storage: Storage,
        ends_silent: bool = True,
    ) -> None:
        """`ends_silent` False: clients are known to live as long as this server does, however silent they are."""
        self._pool = pool
        self._ends_silent = ends_silent
        self._lifecycle = lifecycle
        self._requests = requests
        self._sessions = sessions
        self._settings = settings
        self._storage = storage
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
            self._sessions.look(_LOOK_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)

    async def sweep(self) -> None:
        """End silent sessions, delete expired checkpoints, write and forget what is due."""
        self._sessions.look(_LOOK_SECONDS)
        if self._ends_silent:
            await self._lifecycle.end_silent()
        if time.monotonic() - self._sessions.awake_since > self._settings.result_seconds:
            self._requests.futures.sweep()
        self._requests.futures.forget_stored()
        self._requests.sampling.sweep()
        times = self._requests.intake.taken_times()
        await asyncio.to_thread(self._sweep_store, times, self._pool.weights.urls())

    def stop(self, *, timeout_seconds: float) -> bool:
        """Have no thread begin to sweep the store; whether none is in it any more. Blocking."""
        self._is_stopped = True
        return self._writing.acquire(timeout=timeout_seconds)

    def write_listed(self) -> None:
        """Write what is only listed, if the store can be written now. Blocking."""
        try:
            self._requests.metering.flush()
            self._storage.store.flush()
            self._storage.store.touch_runs(self._requests.intake.taken_times())
        except StorageError as error:
            _log.warning("what is only listed was not written: %s", error)

    def _sweep_store(self, times: Mapping[str, float], files: Collection[str]) -> None:
        with self._writing:
            if self._is_stopped:  # the task that wanted it was cancelled, and this thread began late
                return
            try:
                self._requests.metering.flush()
                self._storage.store.flush()
                self._storage.store.touch_runs(times)
                self._storage.store.sweep_recordings(
                    max_seconds=self._settings.recording_seconds, max_bytes=self._settings.max_recording_bytes
                )
            except StorageError as error:
                _log.warning("what is only listed waits to be written: %s", error)
            self._storage.checkpoints.sweep(files)
