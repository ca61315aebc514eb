"""States of models, saved behind training, so that a replay stays short.

step ── state ── what comes next            the worker copies in order, and writes while training goes on
          └──► on the disk, and all that it covers has its result ──► one commit: the state, answers that may still
               be asked for; the requests that it covers are forgotten
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cookhouse.engine.contract import Account, ModelCommand, Output, Pass, Publish, Save, Saved, Step
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.server.pool.meter import Meter
from cookhouse.server.pool.supervisor import Supervisor
from cookhouse.server.refusals import DiskError, LeaseLostError, LostError, StorageError
from cookhouse.server.sequencer.futures import Futures
from cookhouse.server.sequencer.queues import Coming, History, Queue
from cookhouse.server.sequencer.sampler_files import SamplerFiles
from cookhouse.server.sessions.sessions import Model, SamplerWeights
from cookhouse.server.settings import Settings
from cookhouse.server.storage.journal import Journal, PutState, SetSamplerFile, State

_log = logging.getLogger(__name__)
_LEAST_BYTES = 1024
"""What a request counts at least."""
_WITHOUT_STEP = 4
"""A state is taken without waiting for a step when so many times what makes one due has come up."""
_MOVE_COST = 0.1
"""As `state_cost`, of a model that should move to another worker: it moves once a state is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saving:
    """A state on its way to the disk."""

    model: Model
    history: History
    state_id: str
    covered: Sequence[str]
    """Requests before it."""
    seen: Mapping[str, Any]
    """What had come by then; of what comes later there are entries."""
    num_moves: int
    """Of its model, when it was begun."""
    began_at: float
    answer: "asyncio.Future[Output]"
    published: Mapping[str, SamplerWeights]
    """Weights of samplers before it, which have files from then on."""


class States:
    """Lives on the event loop."""

    def __init__(
        self,
        *,
        files: SamplerFiles,
        futures: Futures,
        journal: Journal,
        meter: Meter,
        settings: Settings,
        supervisor: Supervisor,
    ) -> None:
        self._meter = meter
        self._supervisor = supervisor
        self._pool = supervisor.pool
        self._commit = journal.commit
        self._files = files
        self._folders = journal.folders
        self._futures = futures
        self._settings = settings
        self._cost_seconds = 0.0
        """Of the last state, from its command until it was on the disk."""
        self._next_at = 0.0
        """When states are tried again after one could not be written; on the clock of `time.monotonic`."""
        self._is_failing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, queue: Queue, request_id: str, command: ModelCommand) -> None:
        """Take note of a command that a request has sent, and send what saves its model's state behind it, if that is
        due.
        """
        model, history = queue.model, queue.history
        if isinstance(command, Publish):
            history.published[command.snapshot_id] = model.snapshots[command.snapshot_id]
        if not isinstance(command, Step | Pass) or history.is_saving or time.monotonic() < self._next_at:
            return
        if not self._is_due(history, command):
            return
        history.begin_saving()
        state_id = uuid.uuid4().hex
        save = Save(
            command_id=uuid.uuid4().hex,
            account=Account(model.owner, model.session_id),
            model_id=model.model_id,
            url=self._folders.new_state(state_id).as_uri(),
            form="state",
            with_optimizer=True,
            with_gradient=True,
        )
        saving = _Saving(
            model=model,
            history=history,
            state_id=state_id,
            covered=[*history.up_to(request_id), *history.finished],
            seen={**queue.order.seen.to_json(), "taken_to": history.ran[request_id].taken_to},
            num_moves=history.num_moves,
            began_at=time.monotonic(),
            answer=self._pool.send(save),
            published=dict(history.published),
        )
        task = asyncio.ensure_future(self._keep(saving))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_due(self, history: History, command: ModelCommand) -> bool:
        state_bytes = 0 if history.state is None else history.state.num_bytes
        num_bytes = history.num_bytes + _LEAST_BYTES * len(history.ran)
        most_seconds = max(self._settings.state_seconds, self._cost_seconds / self._settings.state_cost)
        share = max(
            num_bytes / max(self._settings.state_bytes, state_bytes),
            history.busy_seconds / most_seconds if most_seconds else 1.0,
        )
        if share >= (1 if isinstance(command, Step) else _WITHOUT_STEP):
            return True
        least_seconds = max(self._settings.state_seconds, self._cost_seconds / _MOVE_COST)
        may_move = isinstance(command, Step) and history.busy_seconds >= least_seconds
        return may_move and self._supervisor.should_move(command.model_id, state_bytes)

    async def _keep(self, saving: _Saving) -> None:
        """Make what is being written the state of the model; without it the old one and all requests stay."""
        model, history = saving.model, saving.history
        written = [self._folders.new_state(saving.state_id), self._folders.state(saving.state_id)]
        unneeded, state = written, None
        try:
            state, covered = await self._commit_state(saving)
        except LeaseLostError:
            unneeded = []  # another server may have it by now
        except CookhouseError as error:
            if history.coming is not None:  # given up at the end of the server: it may be on the disk
                unneeded = []
            if not model.is_dropped and not isinstance(error, LostError):
                self._note_failure(error)
        else:
            self._is_failing = False
            for snapshot_id in saving.published:
                history.published.pop(snapshot_id, None)
                model.snapshots.pop(snapshot_id, None)
            unneeded = [] if history.state is None else [self._folders.state(history.state.state_id)]
            unneeded += [
                self._folders.load(ran.entry.drawn["id"]) for ran in history.loads() if ran.entry.request_id in covered
            ]
            history.put_state(state, covered)
            self._meter.settle(covered)
        finally:
            history.end_saving()
        if model.is_dropped:  # its session has not known of these
            unneeded = [*written, *map(self._folders.sampler, saving.published)]
        await asyncio.to_thread(self._folders.delete, *unneeded)
        with suppress(StorageError):  # the server ends: the next one deletes them
            await self._files.drop()
        if state is not None:
            await self._supervisor.wait_for_publications(model.model_id)
            if history.num_moves == saving.num_moves and not history.is_saving and model.loss is None:
                self._supervisor.balance(model.model_id, state.num_bytes)  # little would have to run again there

    def _note_failure(self, error: CookhouseError) -> None:
        """Have no state tried for a while: a disk that is full for one model is full for all."""
        self._next_at = time.monotonic() + self._settings.state_retry_seconds
        if not self._is_failing:
            _log.warning("states of models cannot be saved, which is tried again, and requests are kept: %s", error)
        self._is_failing = True

    async def _commit_state(self, saving: _Saving) -> tuple[State, Sequence[str]]:
        """The state, now that it is on the disk, and the requests that it covers.

        Raises:
            ServiceError: it could not be written, or is of no use any more.
        """
        model, history = saving.model, saving.history
        saved = await self._written(saving)
        self._cost_seconds = time.monotonic() - saving.began_at
        await self._futures.finished(saving.covered)
        try:
            await asyncio.to_thread(self._folders.keep_state, saving.state_id)
        except OSError as error:
            raise DiskError(error.strerror or str(error)) from error
        if model.is_dropped:
            raise ServiceError("its session has ended")
        if history.num_moves > saving.num_moves:  # what it covers runs again already
            raise LostError("the engine was lost")
        state = State(
            model_id=model.model_id,
            session_id=model.session_id,
            state_id=saving.state_id,
            num_bytes=sum(saved.sizes.values()),
            seen=saving.seen,
            last_checkpoint=model.last_checkpoint,
            created_at=time.time(),
            sha256=saved.sha256 or None,
        )
        covered = [name for name in saving.covered if name in history.ran or name in history.finished]
        published = saving.published.values()
        files = [SetSamplerFile(one.sampler_id, has_file=True, sha256=one.sha256) for one in published if one.has_file]
        history.coming = Coming(state, frozenset(covered))
        await self._commit.keep(PutState(state, covered, self._futures.unstored(covered)), *files)
        return state, covered

    async def _written(self, saving: _Saving) -> Saved:
        """Record of a state that was written. Published weights that have no file then have been dropped to make room.

        Raises:
            ServiceError: something could not be written.
        """
        filings = await asyncio.to_thread(self._files.commands, saving.model, saving.published)
        files = [self._pool.send(filing) for filing in filings]
        saved, *others = await asyncio.gather(saving.answer, *files, return_exceptions=True)
        written = {filing.snapshot_id: answer for filing, answer in zip(filings, others, strict=True)}
        sizes, digests = await asyncio.to_thread(self._files.keep, written, saving.published)
        for snapshot_id, num_bytes in sizes.items():  # also where the state has failed: a file is written once
            if not saving.published[snapshot_id].has_file and not saving.model.is_dropped:
                self._files.note(saving.published[snapshot_id], num_bytes, digests[snapshot_id])
                # A loss meanwhile has forgotten it, and it is not published again.
                saving.history.published[snapshot_id] = saving.published[snapshot_id]
        for output in (saved, *(output for output in others if not isinstance(output, InputError))):
            if isinstance(output, BaseException):
                raise output
        assert isinstance(saved, Saved)
        return saved
