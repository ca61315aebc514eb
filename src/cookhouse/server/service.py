"""A whole server but for HTTP: its parts, wired."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from cookhouse.engine.contract import Up
from cookhouse.server.access.auth import KeyRing, check_keys
from cookhouse.server.access.hosted_rules import HostedRules
from cookhouse.server.leases.forwarding import Forwarding
from cookhouse.server.leases.leases import Leases
from cookhouse.server.leases.members import Profile
from cookhouse.server.leases.placing import Placing
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.plans import FOLDER, WorkerPlan
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.pool.worker_handle import MakeWorker
from cookhouse.server.recovery.lifecycle import SessionLifecycle
from cookhouse.server.recovery.recovery import Recovery
from cookhouse.server.recovery.sweeper import Sweeper
from cookhouse.server.refusals import LeaseLostError, StorageError
from cookhouse.server.requests.traces import Traces
from cookhouse.server.requests.wiring import Requests
from cookhouse.server.sequencer.draining import Draining
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Sessions, new_shared_id
from cookhouse.server.settings import ServiceOptions
from cookhouse.server.storage.storage import Shared, Storage
from cookhouse.server.storage.store.private import private_folder
from cookhouse.server.storage.store.store import Store

_log = logging.getLogger(__name__)
_HAND_OVER_SECONDS = 10.0
"""How long requests that were sent on to another server may take to be answered, once a server has handed over."""


class Service:
    """The parts of a server. Made in any thread, used from the event loop between `open` and `close`.

    Requests ──► Sequencer ──► Pool ──► worker
       │             └── Futures     Recovery ──► Sequencer
    Storage ◄── Sessions, SessionLifecycle, Sweeper
    """

    def __init__(
        self,
        options: ServiceOptions,
        make_worker: MakeWorker,
        *,
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        store: Store | None = None,
        leases: Leases | None = None,
        say: Callable[[str], None] = _log.info,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        """Open the state folder, which the caller has locked.

        `make_worker` is called on the event loop for each of `plans`, by `open` and whenever a worker was lost. `store`
        None: the one in the state folder. `leases`, over the same store: the service is one of several servers. What a
        person may want to know is said, and warned of where it went wrong.

        Raises:
            InputError: no usable key, or one of the folders or URLs cannot be used.
            ServiceError: the blob store of checkpoints fails.
        """
        check_keys(options.api_keys)  # refused before anything is opened
        self._options = options
        self._warn = warn
        self.settings = settings = options.settings
        self.leases = leases
        self.started_at = time.time()
        self.storage = Storage(
            options.state_dir,
            settings,
            store=store,
            shared=None if leases is None else _shared(leases),
            read_state_dirs=options.read_state_dirs,
            peft_folders=options.peft_folders,
        )
        self.keys = KeyRing(options.api_keys, self.storage.salt)
        self.sessions = Sessions() if leases is None else Sessions(new_shared_id)
        self.rules = HostedRules(is_strict=settings.as_hosted)
        self.traces = Traces(self.storage.secret)
        self.meter = Meter()
        private_folder(options.state_dir / FOLDER)
        self.supervisor = Supervisor(
            make_worker,
            self.meter,
            plans=plans,
            folder=options.state_dir / FOLDER,
            max_file_bytes=settings.max_snapshot_file_bytes,
            max_losses=settings.max_request_losses,
            on_lost=self._note_loss,
        )
        self.pool = self.supervisor.pool
        journal = self.storage.journal
        self.sequencer = Sequencer(
            settings,
            self.supervisor,
            self.meter,
            journal=journal,
            on_finish=self.traces.note,
            is_shared=leases is not None,
        )
        self.requests = Requests(
            meter=self.meter,
            options=options,
            rules=self.rules,
            sequencer=self.sequencer,
            sessions=self.sessions,
            storage=self.storage,
            supervisor=self.supervisor,
        )
        self.lifecycle = SessionLifecycle(
            leases=leases,
            sequencer=self.sequencer,
            sessions=self.sessions,
            settings=settings,
            storage=self.storage,
        )
        self._recovery = None
        if journal is not None:
            self._recovery = Recovery(
                journal=journal,
                lifecycle=self.lifecycle,
                pool=self.pool,
                requests=self.requests,
                say=say,
                sequencer=self.sequencer,
                sessions=self.sessions,
            )
        self.sweeper = Sweeper(
            lifecycle=self.lifecycle,
            pool=self.pool,
            requests=self.requests,
            sessions=self.sessions,
            settings=settings,
            storage=self.storage,
            ends_silent="eof" not in options.end_sessions,
        )
        self.draining = Draining(self.sequencer.futures, hold_seconds=settings.long_poll_seconds)
        self.placing: Placing | None = None
        self._forwarding: Forwarding | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._is_shut_down = False

    async def open(self) -> Up:
        """Start the workers, and wait until they have their base models.

        Raises:
            CookhouseError: one cannot have them; or it only samples, and there are models to be brought back; or these
                are of base models that are not offered.
        """
        sources, base_models = self._options.sources, self.requests.base_models
        if self.leases is not None:
            await self.leases.check_profile(self._profile())
        elif self._recovery is not None:
            await self._check_leftovers(self._recovery)
            if sources is not None:  # before the workers start, which may take minutes
                await self._check_base_models(self._recovery, sources)
        up = await self.supervisor.open()
        base_models.fill(up.base_models, sources, self._options.started_as)
        if self.leases is not None:
            await self._join(self.leases)
        elif self._recovery is not None:
            if sources is None:
                await self._check_base_models(self._recovery, base_models.names)
            await self._recovery.start()
        self._sweeping = asyncio.create_task(self.sweeper.sweep_forever(), name="sweeper")
        return up

    async def _check_leftovers(self, recovery: Recovery) -> None:
        """Raises InputError as `open`."""
        if "start" in self._options.end_sessions:
            await recovery.leftovers.end_all()
        elif self.settings.samplers_only:
            await recovery.leftovers.check_samplers_only()

    async def _check_base_models(self, recovery: Recovery, offered: Collection[str]) -> None:
        """Raises InputError as `open`."""
        if "missing" in self._options.end_sessions:
            await recovery.leftovers.end_missing(offered)
        await recovery.leftovers.check_base_models(offered)

    async def _join(self, leases: Leases) -> None:
        """Be one of several servers, which take over what nobody holds."""
        assert self._recovery is not None
        recovery, is_alone = self._recovery, leases.members.is_alone
        self._forwarding = Forwarding(leases.server_id)
        self.placing = Placing(
            leases, self._forwarding, self.sequencer.futures, hold_seconds=self.settings.long_poll_seconds
        )
        self.draining.send_on = self.placing.to_another
        await leases.join(
            self.sessions,
            recovery.take_over,
            self._profile(),
            self._forwarding.ask,
            on_tried=recovery.report_taken,
        )
        await leases.settle()
        await asyncio.to_thread(self.storage.checkpoints.tidy, is_alone)
        await recovery.leftovers.sweep_shared(is_alone)
        leases.begin_claiming()  # not before: what a restored model is just writing has no row yet

    def _profile(self) -> Profile:
        return Profile(
            journal=self.settings.journal,
            checkpoints=self.settings.checkpoints,
            base_models=self.requests.base_models.names,
        )

    async def hand_over(self) -> None:
        """Have the other servers take over all sessions now, and see that what was sent on to them is answered."""
        if self.leases is None or self._forwarding is None:
            return
        self.sequencer.close()
        self.sequencer.futures.close()
        try:
            if self.storage.journal is not None:
                await self.storage.journal.commit.flush()
        except StorageError as error:
            _log.warning("not all of the journal was written: %s", error)
        await asyncio.to_thread(self._leave, self.leases)
        await self._forwarding.drained(_HAND_OVER_SECONDS)

    def _leave(self, leases: Leases) -> None:
        if not leases.has_left:
            self.sweeper.write_listed()
        leases.leave()

    async def live_sessions(self) -> Collection[str]:
        """Ids of those that have not ended, at whatever server."""
        if self.leases is not None:
            return await asyncio.to_thread(self.leases.members.live_sessions)
        return {session.session_id for session in self.sessions}

    def problem(self) -> str | None:
        """Why requests are not taken, None if they are. Blocking: reads the whole database."""
        return self.pause() or self.storage.store.damage()

    def pause(self) -> str | None:
        """Why requests are not taken for now, None if they are, should the database be sound."""
        if not self.pool.is_up:
            return "the engine is being started"
        if self._recovery is not None and self._recovery.is_starting:
            return "what was accepted before the restart runs again"
        if self.draining.is_begun:
            return "the server is stopping"
        if self.leases is not None and not self.leases.is_current:
            return "the database has not heard of this server for some seconds"
        return None

    async def drain(self, seconds: float) -> bool:
        """Accept nothing more, and wait for what was accepted: see `Draining.done`."""
        self.draining.begin()
        self.supervisor.stop_balancing()
        if self.leases is not None:
            await self.leases.begin_leaving()
        return await self.draining.done(seconds)

    def dismiss_waiters(self) -> None:
        """Answer every held request now: the process is about to end."""
        self.draining.end()
        self.sequencer.futures.close()
        self.requests.answers.dismiss()
        for session in self.sessions:
            for sampler in session.samplers.values():
                sampler.report_progress()

    async def close(self) -> None:
        self.dismiss_waiters()
        tasks = [] if self._recovery is None else [*self._recovery.cancel()]
        if self._sweeping is not None:
            self._sweeping.cancel()
            tasks.append(self._sweeping)
        if tasks:
            await asyncio.wait(tasks)
        self.sequencer.close()
        self.requests.workers.close()
        await self.supervisor.close(seconds=1.0)
        if self.storage.journal is not None:
            try:
                await self.storage.journal.commit.close()
            except LeaseLostError as error:  # whoever holds the sessions has written what counts
                _log.info("%s", error)
        if self.leases is not None:
            self.leases.stop_asking()
        if self._forwarding is not None:
            await self._forwarding.close()
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """Stop the threads and close the files. Again does nothing.

        Blocking: about a second at most, and as long as the store takes to be written; one that is locked or out of
        reach is waited for at each of a few writes, and by a server that shares it, when it hands its sessions over.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self.requests.answers.shut_down()
        self.storage.stop()
        is_swept = self.sweeper.stop(timeout_seconds=1.0)
        if self.leases is None:
            self.sweeper.write_listed()
        else:
            self._leave(self.leases)
        if is_swept:
            self.storage.store.close()

    def _note_loss(self, gone: LostState) -> None:
        """Note the loss of what was in the memory of a worker that ended; it comes back from the journal."""
        num_requests = None if self._recovery is None else self._recovery.run_again(gone)
        if gone.is_loss:
            self._warn(gone.message(num_requests))
        if self._recovery is not None:
            return
        for session in self.sessions:
            for model in session.models.values():
                if model.model_id in gone.model_ids:
                    model.lose(gone.reason)
            for snapshot in session.snapshots():
                if snapshot.snapshot_id in gone.snapshot_ids:
                    snapshot.lose(gone.reason)


def _shared(leases: Leases) -> Shared:
    return Shared(folder=leases.folder, secret=leases.secret, server_id=leases.server_id)
