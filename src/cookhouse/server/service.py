"""A whole server but for HTTP: its parts."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cookhouse.engine.contract import Up
from cookhouse.registry import ModelRegistry
from cookhouse.server.access.auth import KeyRing
from cookhouse.server.leases.forwarding import Forwarding
from cookhouse.server.leases.leases import Leases
from cookhouse.server.leases.members import Profile
from cookhouse.server.leases.placing import Placing
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.plans import FOLDER, WorkerPlan
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.pool.worker_handle import MakeWorker
from cookhouse.server.recovery.journaling import OFF, Journaling
from cookhouse.server.recovery.left import LeftSessions
from cookhouse.server.recovery.replays import Replays
from cookhouse.server.recovery.restoring import Restoring
from cookhouse.server.recovery.session_life import SessionLife
from cookhouse.server.recovery.sweeper import Sweeper
from cookhouse.server.refusals import GoneError, LeaseLostError, NotFoundError, StorageError
from cookhouse.server.requests.accepting import Accepting
from cookhouse.server.requests.base_models import BaseModels
from cookhouse.server.requests.completions.completions import Answers
from cookhouse.server.requests.completions.weights import WeightNames
from cookhouse.server.requests.metering import Metering
from cookhouse.server.requests.recording import Recording
from cookhouse.server.requests.sampling import SamplingRequests
from cookhouse.server.requests.saving import SaveRequests
from cookhouse.server.requests.traces import Traces
from cookhouse.server.requests.training import TrainingRequests
from cookhouse.server.requests.workers import WorkerRequests
from cookhouse.server.sequencer.draining import Draining
from cookhouse.server.sequencer.futures import Future, Futures
from cookhouse.server.sequencer.held import HeldBytes
from cookhouse.server.sequencer.intake import Intake
from cookhouse.server.sequencer.rotation import Rotation
from cookhouse.server.sequencer.samples import Samples
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.ids import new_shared_id
from cookhouse.server.sessions.sessions import Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.checkpoints import Checkpoints
from cookhouse.server.storage.checkpoints.copying import Copying
from cookhouse.server.storage.checkpoints.external_weights import ExternalWeights
from cookhouse.server.storage.checkpoints.readonly import ReadOnlyCheckpoints
from cookhouse.server.storage.checkpoints.remote import RemoteCheckpoints
from cookhouse.server.storage.store.identity import check_state_folder
from cookhouse.server.storage.store.private import SALT_FILE, private_folder, read_or_draw
from cookhouse.server.storage.store.store import Store, open_own

_log = logging.getLogger(__name__)
_HAND_OVER_SECONDS = 10.0
"""How long requests that were sent on to another server may take to be answered, once a server has handed over."""


class Service:
    """The parts of a server, wired. Made in any thread, used from the event loop between `open` and `close`.

    Accepting ──► Intake ──► Journaling     Restoring ──► Sequencer ──► Pool ──► worker
    (TrainingRequests, SaveRequests) └────────────────────►   │
    SamplingRequests ──► Samples ─────────────────────────►   │
    Sessions, Checkpoints ──► Store                           └──► Futures
    """

    def __init__(
        self,
        *,
        api_keys: Sequence[str],
        state_dir: Path,
        settings: Settings,
        make_worker: MakeWorker,
        plans: Sequence[WorkerPlan] = (WorkerPlan(),),
        sources: Mapping[str, str] | None = None,
        read_state_dirs: Sequence[Path] = (),
        peft_folders: Sequence[Path] = (),
        registry: ModelRegistry | None = None,
        runs: Mapping[str, str] | None = None,
        store: Store | None = None,
        leases: Leases | None = None,
        ends_left_sessions: bool = False,
        ends_missing_sessions: bool = False,
        ends_silent_sessions: bool = True,
        say: Callable[[str], None] = _log.info,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        """Open the state folder, which the caller has locked.

        `store` None: the one in the state folder. `leases`, over the same store: the service is one of several servers.
        `make_worker` is called on the event loop for each of `plans`, by `open` and whenever a worker was lost;
        `sources` are for `BaseModels.fill`.

        `ends_left_sessions`: those that an earlier server left are not brought back; `ends_missing_sessions`: those of
        base models that are not offered; `ends_silent_sessions`: see `Sweeper`. What a person may want to know is said,
        and warned of where it went wrong.
        Answers can be asked of the models in `registry`, and by the names in `runs`, which are of `tinker://` paths.

        Raises:
            InputError: no usable key, or one of the folders or URLs cannot be used.
            ServiceError: the blob store of checkpoints fails.
        """
        self.settings = settings
        self.state_dir = state_dir
        self.started_at = time.time()
        self._ends_left_sessions = ends_left_sessions
        self._ends_missing_sessions = ends_missing_sessions
        self._warn = warn
        KeyRing(api_keys)  # refused before anything is opened
        self.store = store or open_own(state_dir / "server.db")
        self.leases = leases
        if leases is None:
            try:
                check_state_folder(state_dir, self.store.database)
            except BaseException:
                if store is None:
                    self.store.close()
                raise
        self.folder = state_dir if leases is None else leases.folder
        secret = None if leases is None else leases.secret
        self.keys = KeyRing(api_keys, secret or read_or_draw(state_dir / SALT_FILE))
        read_only = ReadOnlyCheckpoints(read_state_dirs, peft_folders, imported=self.folder / "peft")
        self._remote = None
        if settings.checkpoints is not None:
            self._remote = RemoteCheckpoints(settings.checkpoints, state_dir / "checkpoints-cache", self.store)
        self.checkpoints = Checkpoints(
            self.folder / "checkpoints", self.store, read_only, is_shared=leases is not None, remote=self._remote
        )
        self.external_weights = ExternalWeights(self.checkpoints, secret)
        self.copying = Copying(self.checkpoints, self.store, server_id=None if leases is None else leases.server_id)
        self.held = HeldBytes(max_bytes=settings.max_held_bytes, max_owner_bytes=settings.max_queued_bytes)
        self.reading = Rotation()
        self.sessions = Sessions() if leases is None else Sessions(new_shared_id)
        self.base_models = BaseModels()
        self.traces = Traces(secret)
        self.futures = Futures(
            result_seconds=settings.result_seconds,
            max_unfetched_sample_bytes=settings.max_unfetched_sample_bytes,
            max_unfetched_training_bytes=settings.max_unfetched_training_bytes,
            on_finish=self.traces.note,
            on_drop=self._forget_answer,
        )
        self.draining = Draining(self.futures, hold_seconds=settings.long_poll_seconds)
        self.placing: Placing | None = None
        self._forwarding: Forwarding | None = None
        self.meter = Meter()
        self._sources = sources
        private_folder(state_dir / FOLDER)
        self.supervisor = Supervisor(
            make_worker,
            self.meter,
            plans=plans,
            folder=state_dir / FOLDER,
            max_file_bytes=settings.max_snapshot_file_bytes,
            max_losses=settings.max_request_losses,
            on_lost=self._note_loss,
        )
        self.pool = self.supervisor.pool
        journal = None
        if settings.journal != OFF:
            journal = Journaling(self.folder, self.store, settings, self.supervisor, self.futures, self.meter)
        self._journal = journal
        self.commit = None if journal is None else journal.commit
        self.sequencer = Sequencer(
            self.futures,
            settings,
            self.pool,
            self.held,
            self.meter,
            commit=self.commit,
            states=None if journal is None else journal.states,
            is_shared=leases is not None,
        )
        self.samples = Samples(self.futures, settings, self.pool, self.held)
        self.session_life = SessionLife(
            futures=self.futures,
            journal=journal,
            leases=leases,
            samples=self.samples,
            sequencer=self.sequencer,
            sessions=self.sessions,
            store=self.store,
        )
        self.metering = Metering(self.meter, self.store)
        self.intake = Intake(self.futures, self.sequencer, self.commit)
        self._writer = _writer("checkpoints")
        recording = Recording(self.store, self.commit, max_bytes=settings.max_decoded_bytes)
        self.training = TrainingRequests(
            base_models=self.base_models,
            checkpoints=self.checkpoints,
            folders=None if journal is None else journal.folders,
            reading=self.reading,
            recording=recording,
            sessions=self.sessions,
            settings=settings,
            store=self.store,
        )
        self.saving = SaveRequests(
            base_models=self.base_models,
            checkpoints=self.checkpoints,
            sessions=self.sessions,
            store=self.store,
            writer=self._writer,
        )
        self.accepting = Accepting(self.intake, self.training, self.saving, self.sessions, settings)
        self.workers = WorkerRequests(self.supervisor, self.sequencer.state_bytes, has_journal=journal is not None)
        self.sampling = SamplingRequests(
            base_models=self.base_models,
            pool=self.pool,
            checkpoints=self.checkpoints,
            commit=self.commit,
            futures=self.futures,
            recording=recording,
            samples=self.samples,
            sessions=self.sessions,
            settings=settings,
            store=self.store,
        )
        self.answers = Answers(
            WeightNames(
                base_models=self.base_models,
                checkpoints=self.checkpoints,
                registry=registry,
                runs=runs,
                sampling=self.sampling,
                samples=self.samples,
                store=self.store,
            ),
            self.samples,
        )
        self._restoring = None
        if journal is not None:
            self._restoring = Restoring(
                accepting=self.accepting,
                base_models=self.base_models,
                pool=self.pool,
                commit=journal.commit,
                folders=journal.folders,
                futures=self.futures,
                intake=self.intake,
                let_go=self.session_life.let_go,
                reader=journal.reader,
                sequencer=self.sequencer,
                sessions=self.sessions,
                states=journal.states,
            )
        self._replays = None if self._restoring is None else Replays(self._restoring, say)
        self._left = None if journal is None else LeftSessions(journal.reader, journal.commit, journal.folders)
        if self._replays is not None:
            self.sessions.check_aside = self._replays.check_aside
        self.sweeper = Sweeper(
            pool=self.pool,
            checkpoints=self.checkpoints,
            futures=self.futures,
            intake=self.intake,
            journal=journal,
            metering=self.metering,
            sampling=self.sampling,
            sequencer=self.sequencer,
            session_life=self.session_life,
            sessions=self.sessions,
            settings=settings,
            store=self.store,
            ends_silent=ends_silent_sessions,
        )
        self._sweeping: asyncio.Task[None] | None = None
        self._is_shut_down = False

    async def open(self) -> Up:
        """Start the workers, and wait until they have their base models.

        Raises:
            CookhouseError: one cannot have them; or it only samples, and there are models to be brought back; or these
                are of base models that are not offered.
        """
        if self._left is not None and self.leases is None:
            await self._look_at_left(self._left)
            if self._sources is not None:  # before the workers start, which may take minutes
                await self._check_base_models(self._left, self._sources)
        if self.leases is not None:
            await self.leases.check_profile(self._profile())
        up = await self.supervisor.open()
        self.base_models.fill(up.base_models, self._sources)
        if self.leases is not None:
            await self._join(self.leases)
        elif self._restoring is not None and self._replays is not None and self._left is not None:
            if self._sources is None:
                await self._check_base_models(self._left, self.base_models.names)
            await self._restoring.sweep()
            await self._replays.restore()
        self._sweeping = asyncio.create_task(self.sweeper.sweep_forever(), name="sweeper")
        return up

    async def _look_at_left(self, left: LeftSessions) -> None:
        """Raises InputError as `open`."""
        if self._ends_left_sessions:
            await left.end()
        elif self.settings.samplers_only:
            await left.check_samplers_only()

    async def _check_base_models(self, left: LeftSessions, offered: Collection[str]) -> None:
        """Raises InputError as `open`."""
        if self._ends_missing_sessions:
            await left.end_missing(offered)
        await left.check_base_models(offered)

    def future(self, request_id: str, owner: str) -> Future:
        """What a tenant asks for. Raises as `Futures.get`, or StorageBusyError: it may come back with its session."""
        try:
            return self.futures.get(request_id, owner)
        except (GoneError, NotFoundError):
            if self._replays is not None:
                self._replays.check_owner(owner)
            raise

    async def _join(self, leases: Leases) -> None:
        """Be one of several servers, which take over what nobody holds."""
        assert self._restoring is not None
        assert self._replays is not None
        self._forwarding = Forwarding(leases.server_id)
        self.placing = Placing(leases, self._forwarding, self.futures, hold_seconds=self.settings.long_poll_seconds)
        self.draining.send_on = self.placing.to_another
        take_over, on_tried = self._replays.take_over, self._replays.tell_of_taken
        await leases.join(self.sessions, take_over, self._profile(), self._forwarding.ask, on_tried=on_tried)
        await leases.settle()
        await asyncio.to_thread(self.checkpoints.tidy, leases.members.is_alone)
        await self._restoring.sweep_shared(leases.members.is_alone)
        leases.begin_claiming()  # not before: what a restored model is just writing has no row yet

    def _profile(self) -> Profile:
        return Profile(
            journal=self.settings.journal,
            checkpoints=self.settings.checkpoints,
            base_models=self.base_models.names,
        )

    async def hand_over(self) -> None:
        """Have the other servers take over all sessions now, and see that what was sent on to them is answered."""
        if self.leases is None or self._forwarding is None:
            return
        self.sequencer.close()
        self.futures.close()
        try:
            if self.commit is not None:
                await self.commit.flush()
        except StorageError as error:
            _log.warning("not all of the journal was written: %s", error)
        await asyncio.to_thread(self._leave)
        await self._forwarding.drained(_HAND_OVER_SECONDS)

    def _leave(self) -> None:
        assert self.leases is not None
        if not self.leases.has_left:
            self.sweeper.write_listed()
        self.leases.leave()

    async def live_sessions(self) -> Collection[str]:
        """Ids of those that have not ended, at whatever server."""
        if self.leases is not None:
            return await asyncio.to_thread(self.leases.members.live_sessions)
        return {session.session_id for session in self.sessions}

    def problem(self) -> str | None:
        """Why requests are not taken, None if they are. Blocking: reads the whole database."""
        return self.pause() or self.store.damage()

    def pause(self) -> str | None:
        """Why requests are not taken for now, None if they are, should the database be sound."""
        if not self.pool.is_up:
            return "the engine is being started"
        if self._replays is not None and self._replays.is_starting:
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
        self.futures.close()
        self.answers.dismiss()
        for session in self.sessions:
            for sampler in session.samplers.values():
                sampler.report_progress()

    async def close(self) -> None:
        self.dismiss_waiters()
        tasks = [] if self._replays is None else [*self._replays.cancel()]
        if self._sweeping is not None:
            self._sweeping.cancel()
            tasks.append(self._sweeping)
        if tasks:
            await asyncio.wait(tasks)
        self.sequencer.close()
        self.workers.close()
        await self.supervisor.close(seconds=1.0)
        if self.commit is not None:
            try:
                await self.commit.close()
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
        self.answers.shut_down()
        self.copying.close()
        self._writer.shutdown(wait=False, cancel_futures=True)
        if self._remote is not None:
            self._remote.close()
        is_swept = self.sweeper.stop(timeout_seconds=1.0)
        if self.leases is None:
            self.sweeper.write_listed()
        else:
            self._leave()
        if is_swept:
            self.store.close()

    def _forget_answer(self, future: Future) -> None:
        if self._journal is not None:
            self._journal.forget_answer(future)

    def _note_loss(self, gone: LostState) -> None:
        """What was in the memory of a worker that ended is gone, and comes back from the journal."""
        num_requests = None if self._restoring is None else self._restoring.run_again(gone)
        if gone.is_loss:
            self._warn(gone.message(num_requests))
        if self._restoring is not None:
            return
        for session in self.sessions:
            for model in session.models.values():
                if model.model_id in gone.model_ids:
                    model.lose(gone.reason)
            for sampler in session.samplers.values():
                if sampler.snapshot is not None and sampler.snapshot.snapshot_id in gone.snapshot_ids:
                    sampler.snapshot.lose(gone.reason)


def _writer(name: str) -> ThreadPoolExecutor:
    """One thread that writes files in order."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
