"""A whole server but for HTTP: its parts, and the life of sessions."""

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import Engine
from cookhouse.errors import InputError
from cookhouse.server.auth import KeyRing
from cookhouse.server.base_models import BaseModels
from cookhouse.server.checkpoints import Checkpoints
from cookhouse.server.external_weights import ExternalWeights
from cookhouse.server.futures import Futures, Result
from cookhouse.server.intake import Intake
from cookhouse.server.refusals import GoneError
from cookhouse.server.sampling import Sampling
from cookhouse.server.saving import Saving
from cookhouse.server.sequencer import Sequencer
from cookhouse.server.sessions import Model, Session, Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.snapshots import Snapshots
from cookhouse.server.store import SessionRow, Store
from cookhouse.server.training import Training

_log = logging.getLogger(__name__)


class Service:
    """The parts of a server, wired. Made in any thread, used from the event loop between `open` and `close`.

    Training, Saving ──► Intake ──► Sequencer ──► engine
    Sampling ───────────────────────►    │
    Sessions, Checkpoints ──► Store      └──► Futures
    """

    def __init__(self, *, api_keys: Sequence[str], state_dir: Path, settings: Settings) -> None:
        """Open the state folder, which the caller has locked.

        Raises:
            InputError: no usable key, or the folder cannot be used.
        """
        self.settings = settings
        self.keys = KeyRing(api_keys)
        self.store = Store(state_dir / "server.db")
        self.checkpoints = Checkpoints(state_dir / "checkpoints", self.store)
        self.external_weights = ExternalWeights(self.checkpoints)
        self.sessions = Sessions()
        self.base_models = BaseModels()
        self.futures = Futures(
            result_seconds=settings.result_seconds, max_unfetched_sample_bytes=settings.max_unfetched_sample_bytes
        )
        self.snapshots = Snapshots(state_dir / "snapshots", settings.max_snapshot_bytes)
        self.sequencer = Sequencer(self.futures, settings, self.snapshots)
        self.intake = Intake(self.futures, self.sequencer)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints", initializer=_use_any_core)
        self.training = Training(
            base_models=self.base_models,
            checkpoints=self.checkpoints,
            intake=self.intake,
            sessions=self.sessions,
            settings=settings,
            store=self.store,
        )
        self.saving = Saving(
            checkpoints=self.checkpoints,
            futures=self.futures,
            intake=self.intake,
            sequencer=self.sequencer,
            sessions=self.sessions,
            snapshots=self.snapshots,
            store=self.store,
            writer=self._writer,
        )
        self.sampling = Sampling(
            base_models=self.base_models,
            checkpoints=self.checkpoints,
            futures=self.futures,
            sequencer=self.sequencer,
            sessions=self.sessions,
            settings=settings,
            snapshots=self.snapshots,
            store=self.store,
        )
        self._sweeper: asyncio.Task[None] | None = None
        self._is_shut_down = False

    async def open(self) -> None:
        self.futures.open()
        self._sweeper = asyncio.create_task(self._sweep_forever(), name="sweeper")

    def dismiss_waiters(self) -> None:
        """Answer every held request now: the process is about to end."""
        self.futures.close()
        for session in self.sessions:
            for sampler in session.samplers.values():
                sampler.report_progress()

    async def close(self) -> None:
        self.dismiss_waiters()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """Stop the threads and close the files; blocking, at most about a second. Again does nothing."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self._writer.shutdown(wait=False, cancel_futures=True)
        self.store.touch_runs(self.intake.taken_times())
        # An engine that is busy for longer may still be saving; its store ends with the process.
        if self.sequencer.stop(seconds=1.0):
            self.store.close()

    async def begin_session(
        self,
        owner: str,
        *,
        idempotency_key: str | None,
        display_name: str | None,
        user_metadata: Mapping[str, Any] | None,
    ) -> Session:
        session, is_new = self.sessions.begin(owner, idempotency_key)
        if is_new:
            row = SessionRow(
                session_id=session.session_id,
                owner=owner,
                created_at=time.time(),
                display_name=display_name,
                user_metadata=dict(user_metadata or {}),
            )
            await asyncio.to_thread(self.store.add_session, row)
        return session

    async def finish_session(self, session_id: str, owner: str) -> None:
        """End a session at its client's word; one that has ended already is left as it is."""
        try:
            session = self.sessions.session(session_id, owner)
        except GoneError:
            return
        await self._end(session)

    async def _end(self, session: Session) -> None:
        """Free a session's models and snapshots; what waits for them fails."""
        self.sessions.end(session)
        ended = Result.of_error(InputError(f"session {session.session_id} has ended"))
        for model in session.models.values():
            for future in self.sequencer.drop_model(model.model_id):
                self.futures.finish(future, ended)
            self.sequencer.errand(partial(_free_model, model))
        for sampler in session.samplers.values():
            for request_id in sampler.requests.values():
                unfinished = self.futures.peek(request_id)
                if unfinished is not None and unfinished.result is None:
                    self.sequencer.cancel_sample(request_id)
            if sampler.snapshot is not None:
                self.sequencer.errand(partial(self.snapshots.free, snapshot=sampler.snapshot))
        self.futures.start_clock(session.session_id)
        await asyncio.to_thread(self.store.finish_session, session.session_id, time.time())

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.sweep_seconds)
            try:
                await self.sweep()
            except Exception:
                _log.exception("a sweep failed; the next one is in %s s", self.settings.sweep_seconds)

    async def sweep(self) -> None:
        """End silent sessions, delete expired checkpoints, forget old results."""
        silent_since = time.monotonic() - self.settings.session_seconds
        for session in self.sessions:
            if session.heard_at < silent_since:
                _log.warning("session %s has not been heard of; freeing its models", session.session_id)
                await self._end(session)
        self.futures.sweep()
        self.sampling.sweep()
        times = self.intake.taken_times()
        await asyncio.to_thread(self._sweep_store, times)

    def _sweep_store(self, times: Mapping[str, float]) -> None:
        self.store.touch_runs(times)
        self.checkpoints.delete_expired()


def _free_model(model: Model, engine: Engine) -> None:
    if model.is_made:
        engine.delete_model(model.model_id)


def _use_any_core() -> None:
    """Free this thread of the core of the one that started it: the engine's is bound to its own."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
