"""Restoration of one session from the journal: its answers, its sampling clients, and its models, by replay.

state ── Load ──► what ran since, in the order in which it ran ──► what had not run
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cookhouse.engine.contract import DamagedError, Load, LoraSpec
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.server.pool.pool import Pool
from cookhouse.server.refusals import StorageBusyError, message_of
from cookhouse.server.requests.intake import Intake, creation_id_of, identity_of
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.sequencer.futures import Future, Futures, Result
from cookhouse.server.sequencer.order import SeenIds
from cookhouse.server.sequencer.queues import Attempt, History, Job
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Model, Sampler, SamplerWeights, Session, Sessions
from cookhouse.server.storage.journal import Answer, DamagedBodyError, Entry, Journal, State
from cookhouse.server.storage.store.rows import RunRow, SamplerRow, SessionRow

_log = logging.getLogger(__name__)
_DAMAGED_STATE = "its state is damaged on the service's side, whose operator may have a backup; its log has the details"


@dataclass(slots=True)
class Entries:
    """Of one model."""

    finished: list[Entry] = field(default_factory=list)
    """Those whose answer is kept in their place."""
    waiting: list[Entry] = field(default_factory=list)
    """Those that have to run again."""


@dataclass(slots=True, kw_only=True)
class StoredSession:
    """A session as the journal and its folders have it."""

    row: SessionRow
    runs: Sequence[RunRow]
    samplers: Sequence[SamplerRow]
    entries: Mapping[str, Entries]
    """By model."""
    next_position: int
    """One more than the largest of its entries."""
    states: Mapping[str, State]
    """By model."""
    file_bytes: Mapping[str, int]
    """Of published weights in files, by snapshot."""
    answers: Sequence[Answer]
    damaged: Mapping[str, DamagedBodyError]
    """By request whose answer cannot be read."""
    segments: Collection[str]
    """Those that its bodies lie in."""

    @classmethod
    def read(cls, session_id: str, journal: Journal) -> "StoredSession | None":
        """None: it has ended. Blocking. Raises StorageError: it cannot be read."""
        with journal.reader.at_once() as reader:
            row = reader.live_session(session_id)
            if row is None:
                return None
            samplers, runs = reader.samplers(session_id), reader.runs(session_id)
            entries, next_position = dict[str, Entries](), 0
            for entry in reader.entries(session_id):
                of_model = entries.setdefault(entry.model_id, Entries())
                (of_model.finished if entry.is_finished else of_model.waiting).append(entry)
                next_position = max(next_position, entry.position + 1)
            damaged: dict[str, DamagedBodyError] = {}
            return cls(
                row=row,
                runs=runs,
                samplers=samplers,
                entries=entries,
                next_position=next_position,
                states={state.model_id: state for state in reader.states(session_id)},
                file_bytes=journal.folders.sampler_bytes([row.snapshot_id for row in samplers if row.snapshot_id]),
                answers=reader.answers(session_id, damaged.__setitem__),
                damaged=damaged,
                segments=reader.segments(session_id),
            )


@dataclass(slots=True)
class Restored:
    """Sessions, models and requests that were brought back."""

    num_sessions: int = 0
    num_models: int = 0
    num_requests: int = 0
    waiting: list[tuple[str, Future]] = field(default_factory=list)
    """Requests that run again, with their models."""

    def add(self, other: "Restored") -> None:
        """Count what another has, too."""
        self.num_sessions += other.num_sessions
        self.num_models += other.num_models
        self.num_requests += other.num_requests
        self.waiting += other.waiting


class Replay:
    """Jobs that bring a model back to where it was. Lives on the event loop."""

    def __init__(self, *, base_models: OfferedModels, futures: Futures, intake: Intake, journal: Journal) -> None:
        self._base_models = base_models
        self._futures = futures
        self._intake = intake
        self._journal = journal
        self._loading: dict[str, Model] = {}

    def loading(self) -> Sequence[Model]:
        """Models whose state is being loaded."""
        return list(self._loading.values())

    def forget(self, model: Model) -> None:
        """The model is not brought back after all."""
        self._loading.pop(model.model_id, None)

    def after_start(self, model: Model, state: State | None, waiting: Sequence[Entry]) -> Sequence[Job]:
        """For a model of an earlier process, or of another server: `waiting` have no result that is kept."""
        ordered = sorted(waiting, key=lambda entry: (entry.run_index is None, entry.run_index or 0, entry.position))
        creations = [entry for entry in ordered if entry.request_id == model.creation]
        others = [entry for entry in ordered if entry.request_id != model.creation]
        jobs = [self._request(model, entry) for entry in (*creations, *others)]
        if state is None:
            return jobs
        self._loading[model.model_id] = model
        return [self._load(model, state), *jobs]

    def after_loss(self, model: Model, history: History) -> Iterable[Job]:
        """For a model that a worker held."""
        state, since = history.newest()
        if state is not None:
            yield self._load(model, state)
        for ran in since:
            if ran.changes_model or not self._is_done(ran.entry):
                yield self._request(model, ran.entry)

    def _is_done(self, entry: Entry) -> bool:
        future = self._futures.peek(entry.request_id)
        return future is None or future.result is not None

    def _request(self, model: Model, entry: Entry) -> Job:
        return Job(
            run=partial(self._intake.run, entry),
            future=self._futures.peek(entry.request_id),
            entry=entry,
            num_bytes=entry.num_bytes,
            is_creation=entry.request_id == model.creation,
            changes_model=entry.drawn["changes_model"],
            runs_again=True,
        )

    def _load(self, model: Model, state: State) -> Job:
        async def load(attempt: Attempt) -> Result:
            try:
                command = Load(
                    **identity_of(model),
                    base_model=self._base_models.named(model.base_model).name,
                    lora=model.lora,
                    url=self._journal.folders.state(state.state_id).as_uri(),
                    sha256=state.sha256,
                    with_optimizer=True,
                    with_gradient=True,
                )
                await attempt.send(command)
            except CookhouseError as error:
                is_damaged, newest = isinstance(error, DamagedError), None
                if is_damaged:
                    newest = await asyncio.to_thread(self._journal.reader.newest_checkpoint, model.model_id)
                if attempt.is_current():
                    model.last_checkpoint = newest or model.last_checkpoint
                    model.lose(_DAMAGED_STATE if is_damaged else message_of(error))
                raise
            finally:
                if attempt.is_current():
                    self.forget(model)
            return Result.of_json({})

        return Job(run=load, runs_again=True)


class Restoration:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        base_models: OfferedModels,
        pool: Pool,
        futures: Futures,
        intake: Intake,
        journal: Journal,
        replay: Replay,
        sequencer: Sequencer,
        sessions: Sessions,
    ) -> None:
        self._base_models = base_models
        self._pool = pool
        self._futures = futures
        self._intake = intake
        self._journal = journal
        self._replay = replay
        self._sequencer = sequencer
        self._sessions = sessions

    async def restore(self, stored: StoredSession) -> Restored:
        """Make a session that is not there. Where it raises, what was made until then stays.

        Raises:
            StorageBusyError: a request cannot be read now.
        """
        row, restored = stored.row, Restored(num_sessions=1)
        session = self._sessions.add(row.session_id, row.owner, row.idempotency_key)
        self._journal.commit.adopt(stored.segments)
        for request_id, error in stored.damaged.items():
            _log.error("the result of %s cannot be had again: %s", request_id, error)
            self._fail(request_id, row, error)
        for answer in stored.answers:
            self._futures.restore(answer)
        for run in stored.runs:
            if run.model_id in stored.states and run.model_seq_id is not None:
                self._sessions.add_model(_model_of(run))
        for model_id, entries in stored.entries.items():
            for entry in entries.waiting:  # a creation that has failed makes no model
                if entry.request_id == creation_id_of(model_id):
                    await self._plan_creation(entry)
        waiting = [entry for entries in stored.entries.values() for entry in entries.waiting]
        publishing = {entry.drawn["id"]: entry for entry in waiting}
        for sampler in stored.samplers:
            self._restore_sampler(sampler, publishing.get(sampler.snapshot_id or ""), stored.file_bytes)
        for model in session.models.values():
            restored.num_models += 1
            entries = stored.entries.get(model.model_id, Entries())
            self._restore_model(session, model, stored.states.get(model.model_id), entries, restored)
        self._sessions.hear(row.session_id)  # bodies may have taken long to read
        made = {model.model_id for model in session.models.values()}
        for entry in waiting:
            if entry.model_id not in made:
                text = f"model {entry.model_id} could not be restored; the server's log has the details"
                self._fail(entry.request_id, row, ServiceError(text))
                self._pool.give_up(entry.drawn["id"])
        return restored

    def _fail(self, request_id: str, row: SessionRow, error: CookhouseError) -> None:
        """Answer a request whose result, or whose model, cannot be had again."""
        future = self._futures.create(request_id, owner=row.owner, session_id=row.session_id)
        self._futures.finish(future, Result.of_error(error))

    async def _plan_creation(self, entry: Entry) -> None:
        """Make the model known that an entry creates. Raises StorageBusyError: the entry cannot be read now."""
        try:
            plan = await self._intake.plan(entry)
        except StorageBusyError:
            raise
        except CookhouseError as error:
            _log.error("%s cannot be made again: %s", entry.model_id, error)
        else:
            if plan.on_accepted is not None:
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
        snapshot = SamplerWeights(
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
            assert self._sequencer.sampler_files is not None
            self._sequencer.sampler_files.note(snapshot, file_bytes.get(row.snapshot_id, 0), row.sha256)
        elif publishing is not None:
            self._pool.expect(row.snapshot_id)
        else:
            snapshot.lose("the server was restarted")

    def _restore_model(
        self, session: Session, model: Model, state: State | None, entries: Entries, restored: Restored
    ) -> None:
        history = History(state=state)
        seen = SeenIds() if state is None else SeenIds.of_json(state.seen)
        if state is not None:
            model.last_checkpoint = state.last_checkpoint
        request_ids = {entry.request_id for entry in (*entries.finished, *entries.waiting)}
        for sampler in session.samplers.values():
            if sampler.snapshot is not None and sampler.creation in request_ids:
                model.snapshots[sampler.snapshot.snapshot_id] = sampler.snapshot
        for entry in entries.waiting:
            future = self._futures.peek(entry.request_id) or self._futures.create(
                entry.request_id, owner=entry.owner, session_id=entry.session_id
            )
            restored.waiting.append((model.model_id, future))
        for entry in entries.finished:
            history.finished.add(entry.request_id)
            if entry.seq_id is not None:
                seen.add(entry.seq_id)
        restored.num_requests += len(entries.waiting)
        self._sequencer.restore(model, history, seen, self._replay.after_start(model, state, entries.waiting))


def _model_of(run: RunRow) -> Model:
    """The model of a training run of the journal."""
    assert run.model_seq_id is not None
    return Model(
        model_id=run.model_id,
        session_id=run.session_id,
        owner=run.owner,
        base_model=run.base_model,
        lora=LoraSpec(**run.lora),
        seq_id=run.model_seq_id,
        creation=creation_id_of(run.model_id),
    )
