"""Bringing models back: after a restart all of the journal's, after the loss of a worker those it held.

state ── Load ──► what ran since, in the order in which it ran ──► what had not run
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from cookhouse.engine.contract import DamagedError, Load, LoraSpec
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.server.pool.life import LostState
from cookhouse.server.pool.pool import Pool
from cookhouse.server.recovery.journaled import Journaled, model_of, read_session, sweep
from cookhouse.server.recovery.restored import Restored
from cookhouse.server.refusals import StorageBusyError, message_of
from cookhouse.server.requests.accepting import Accepting
from cookhouse.server.requests.base_models import BaseModels
from cookhouse.server.requests.commands import identity_of
from cookhouse.server.sequencer.futures import Futures, Result
from cookhouse.server.sequencer.history import History
from cookhouse.server.sequencer.intake import Intake
from cookhouse.server.sequencer.order import SeenIds
from cookhouse.server.sequencer.plans import request_id_of
from cookhouse.server.sequencer.queues import Job
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sequencer.states import States
from cookhouse.server.sequencer.turn import Turn
from cookhouse.server.sessions.sessions import Model, Sampler, Session, Sessions, Snapshot
from cookhouse.server.storage.journal import (
    FINISHED,
    Entry,
    GroupCommit,
    JournalReader,
    State,
)
from cookhouse.server.storage.journal.folders import JournalFolders
from cookhouse.server.storage.store.rows import SamplerRow, SessionRow

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_DAMAGED_STATE = "its state is damaged on the service's side, whose operator may have a backup; its log has the details"


class Restoring:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        accepting: Accepting,
        base_models: BaseModels,
        pool: Pool,
        commit: GroupCommit,
        folders: JournalFolders,
        futures: Futures,
        intake: Intake,
        let_go: Callable[[Session], None],
        reader: JournalReader,
        sequencer: Sequencer,
        sessions: Sessions,
        states: States,
    ) -> None:
        """`let_go` has a session gone from memory alone."""
        self._loading_models: dict[str, Model] = {}
        """Whose state is being loaded."""
        self._accepting = accepting
        self._base_models = base_models
        self._pool = pool
        self._commit = commit
        self._folders = folders
        self._futures = futures
        self._intake = intake
        self._let_go = let_go
        self._reader = reader
        self._sequencer = sequencer
        self._sessions = sessions
        self._states = states

    async def sweep(self) -> None:
        """Put aside bodies that an earlier process left behind."""
        await self._commit.sweep()

    async def sweep_shared(self, is_alone: Callable[[], bool]) -> None:
        """Deal with what earlier servers left behind, where no other has written any of it."""
        await self._commit.sweep(is_alone)
        await asyncio.to_thread(self._sweep_folders, is_alone)

    def _sweep_folders(self, is_alone: Callable[[], bool] = lambda: True) -> None:
        found = self._folders.found()
        if not is_alone():
            return
        try:
            sweep(self._reader, self._folders, found)
        except StorageBusyError:
            raise
        except Exception:  # a row that cannot be decoded may be the one that needs a folder
            _log.exception("rows of the journal cannot be read, and no folder is deleted")

    async def restore(self, on_failed: Callable[[str, str], None]) -> Restored:
        """Bring back all live sessions; their requests run again behind the answer. `on_failed` is told the id and the
        owner of each of which nothing could be brought back.

        Raises:
            StorageError: the journal cannot be read.
        """
        restored = self._restored()
        await asyncio.to_thread(self._sweep_folders)
        for session_id, owner in (await asyncio.to_thread(self._reader.live_owners)).items():
            while True:
                try:
                    restored.add(await self.take_over(session_id))
                except StorageBusyError as error:
                    _log.error("a request cannot be read again: %s; trying again", error)
                    await asyncio.sleep(_RETRY_SECONDS)
                except Exception as error:
                    text = "session %s cannot be brought back, and is set aside: %s: %s"
                    _log.error(text, session_id, type(error).__name__, error)
                    on_failed(session_id, owner)
                    break
                else:
                    break
        return restored

    async def take_over(self, session_id: str) -> Restored:
        """Bring back a session, if it has not ended; its requests run again behind the answer.

        Raises:
            StorageBusyError: it cannot be read now; nothing was brought back.
            Exception: it cannot be brought back, and nothing was.
        """
        stored = await asyncio.to_thread(self._stored, session_id)
        return self._restored() if stored is None else await self._whole(stored)

    def _stored(self, session_id: str) -> Journaled | None:
        with self._reader.at_once() as reader:
            row = reader.live_session(session_id)
            return None if row is None else read_session(row, reader, self._folders)

    async def _whole(self, stored: Journaled) -> Restored:
        """A session, all or nothing of it."""
        restored = self._restored()
        self._intake.number_from(max((entry.position for entry in stored.entries), default=-1) + 1)
        try:
            await self._restore_session(stored, restored)
        except BaseException:
            self._take_out(stored.session)
            raise
        return restored

    def _restored(self) -> Restored:
        patience = self._sequencer.patience
        return Restored(loading=self._loading_models, waits=lambda name: patience.words(name) is not None)

    def _take_out(self, row: SessionRow) -> None:
        """Take out what there is of a session that could not be brought back whole."""
        if not self._sessions.has(row.session_id):
            return
        session = self._sessions.session(row.session_id, row.owner)
        for model in session.models.values():
            self._loading_models.pop(model.model_id, None)
        self._let_go(session)

    def run_again(self, gone: LostState) -> int:
        """Have other workers do what one that is lost, or leaves, did since each model's last state; how many requests
        that are.
        """
        num_requests = 0
        for session in self._sessions:
            for model in session.models.values():
                if model.model_id in gone.model_ids:
                    num_requests += self._sequencer.run_again(
                        model, partial(self._jobs_again, model), is_loss=gone.is_loss
                    )
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

    async def _restore_session(self, stored: Journaled, restored: Restored) -> None:
        row = stored.session
        session = self._sessions.add(row.session_id, row.owner, row.idempotency_key)
        restored.num_sessions += 1
        self._commit.adopt(stored.segments)
        for request_id, error in stored.damaged.items():
            _log.error("the result of %s cannot be had again: %s", request_id, error)
            future = self._futures.create(request_id, owner=row.owner, session_id=row.session_id)
            self._futures.finish(future, Result.of_error(error))
        for answer in stored.answers:
            future = self._futures.create(answer.request_id, owner=answer.owner, session_id=answer.session_id)
            result = Result(
                body=answer.body,
                media_type=answer.media_type,
                is_failure=answer.is_failure,
                status=answer.status,
                kind=answer.kind,
            )
            future.is_stored = True
            self._futures.finish(future, result)
        entries = defaultdict(list)
        for entry in stored.entries:
            entries[entry.model_id].append(entry)
        states = {state.model_id: state for state in stored.states}
        for run in stored.runs:
            if run.model_id in states and run.model_seq_id is not None:
                self._sessions.add_model(model_of(run))
        for of_model in entries.values():
            for creation in of_model:
                # One that has failed makes none.
                if creation.kind != FINISHED and creation.request_id == request_id_of(creation.model_id, "creation"):
                    await self._plan_creation(creation)
        publishing = {entry.drawn["id"]: entry for entry in stored.entries if entry.kind != FINISHED}
        for sampler in stored.samplers:
            self._restore_sampler(sampler, publishing.get(sampler.snapshot_id or ""), stored.file_bytes)
        for model in session.models.values():
            restored.num_models += 1
            self._restore_model(model, states.get(model.model_id), entries.pop(model.model_id, []), restored)
        for of_model in entries.values():
            self._fail([entry for entry in of_model if entry.kind != FINISHED])

    async def _plan_creation(self, entry: Entry) -> None:
        """Make the model known that an entry creates. Raises StorageBusyError: the entry cannot be read now."""
        try:
            plan = await self._accepting.plan(entry, self._reader)
        except StorageBusyError:
            raise
        except CookhouseError as error:
            _log.error("%s cannot be made again: %s", entry.model_id, error)
        else:
            plan.on_accepted()

    def _restore_sampler(self, row: SamplerRow, publishing: Entry | None, file_bytes: Mapping[str, int]) -> None:
        """`publishing`: the request that publishes its weights, if that has to run again."""
        if row.seq_id is None:  # of an older version, whose samplers do not survive
            return
        try:
            base_model = self._base_models.named(row.base_model).name
        except InputError as error:
            _log.error("sampling client %s cannot be brought back: %s", row.sampler_id, error)
            return
        sampler = Sampler(
            sampler_id=row.sampler_id,
            session_id=row.session_id,
            owner=row.owner,
            base_model=row.base_model,
            model_path=row.model_path,
            seq_id=row.seq_id,
        )
        self._sessions.add_sampler(sampler)
        if row.snapshot_id is None:
            return
        snapshot = Snapshot(
            snapshot_id=row.snapshot_id,
            owner=row.owner,
            base_model=base_model,
            lora=None if row.lora is None else LoraSpec(**row.lora),
            is_published=True,
            sampler_id=row.sampler_id,
        )
        sampler.snapshot = snapshot
        if publishing is not None:
            sampler.creation = publishing.request_id
        if row.has_file:
            self._states.note_file(snapshot, file_bytes.get(row.snapshot_id, 0), row.sha256)
        elif publishing is not None:
            self._pool.expect(row.snapshot_id)
        else:
            snapshot.lose("the server was restarted")

    def _restore_model(self, model: Model, state: State | None, entries: Sequence[Entry], restored: Restored) -> None:
        history = History(state=state)
        seen = SeenIds() if state is None else SeenIds.of_json(state.seen)
        if state is not None:
            model.last_checkpoint = state.last_checkpoint
        for sampler in self._sessions.session(model.session_id, model.owner).samplers.values():
            snapshot = sampler.snapshot
            if snapshot is not None and any(entry.request_id == sampler.creation for entry in entries):
                model.snapshots[snapshot.snapshot_id] = snapshot
        waiting = [entry for entry in entries if entry.kind != FINISHED]
        for entry in waiting:
            future = self._futures.peek(entry.request_id) or self._futures.create(
                entry.request_id, owner=entry.owner, session_id=entry.session_id
            )
            restored.waiting.append((model.model_id, future.done))
        for entry in entries:
            if entry.kind == FINISHED:
                history.finished.add(entry.request_id)
            if entry.kind == FINISHED and entry.seq_id is not None:
                seen.add(entry.seq_id)
        restored.num_requests += len(waiting)
        ordered = sorted(waiting, key=lambda entry: (entry.run_index is None, entry.run_index or 0, entry.position))
        creations = [entry for entry in ordered if entry.request_id == model.creation]
        others = [entry for entry in ordered if entry.request_id != model.creation]
        jobs = [self._job(model, entry) for entry in (*creations, *others)]
        if state is not None:
            self._loading_models[model.model_id] = model
            jobs.insert(0, self._loading(model, state))
        self._sequencer.restore(model, history, seen, jobs)

    def _jobs_again(self, model: Model, history: History) -> Iterable[Job]:
        """What a new worker has to do, for a model that the lost one held."""
        state, since = history.newest()
        if state is not None:
            yield self._loading(model, state)
        for ran in since:
            if ran.changes_model or not self._is_done(ran.entry):
                yield self._job(model, ran.entry)

    def _is_done(self, entry: Entry) -> bool:
        future = self._futures.peek(entry.request_id)
        return future is None or future.result is not None

    def _job(self, model: Model, entry: Entry) -> Job:
        return Job(
            run=partial(self._accepting.run, entry, self._reader),
            future=self._futures.peek(entry.request_id),
            entry=entry,
            num_bytes=entry.num_bytes,
            is_creation=entry.request_id == model.creation,
            changes_model=entry.drawn["changes_model"],
            runs_again=True,
        )

    def _loading(self, model: Model, state: State) -> Job:
        async def load(turn: Turn) -> Result:
            try:
                command = Load(
                    **identity_of(model),
                    base_model=self._base_models.named(model.base_model).name,
                    lora=model.lora,
                    url=self._folders.state(state.state_id).as_uri(),
                    sha256=state.sha256,
                    with_optimizer=True,
                    with_gradient=True,
                )
                await turn.send(command)
            except CookhouseError as error:
                is_damaged = isinstance(error, DamagedError)
                newest = await asyncio.to_thread(self._reader.newest_checkpoint, model.model_id) if is_damaged else None
                if turn.is_current():
                    model.last_checkpoint = newest or model.last_checkpoint
                    model.lose(_DAMAGED_STATE if is_damaged else message_of(error))
                raise
            finally:
                if turn.is_current():
                    self._loading_models.pop(model.model_id, None)
            return Result.of_json({})

        return Job(run=load, runs_again=True)

    def _fail(self, entries: Sequence[Entry]) -> None:
        """Answer requests whose model cannot be made again."""
        for entry in entries:
            future = self._futures.create(entry.request_id, owner=entry.owner, session_id=entry.session_id)
            error = ServiceError(f"model {entry.model_id} could not be restored; the server's log has the details")
            self._futures.finish(future, Result.of_error(error))
            self._pool.give_up(entry.drawn["id"])
