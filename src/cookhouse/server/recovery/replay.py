"""Replay of a model: the jobs that bring it back to where it was.

state ── Load ──► what ran since, in the order in which it ran ──► what had not run
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from cookhouse.engine.contract import DamagedError, Load
from cookhouse.errors import CookhouseError
from cookhouse.server.refusals import message_of
from cookhouse.server.requests.intake import Intake
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.requests.plans import identity_of
from cookhouse.server.sequencer.attempts import Attempt
from cookhouse.server.sequencer.futures import Futures, Result
from cookhouse.server.sequencer.queues import History, Job
from cookhouse.server.sessions.sessions import Model
from cookhouse.server.storage.journal import Entry, Journal, State

_DAMAGED_STATE = "its state is damaged on the service's side, whose operator may have a backup; its log has the details"


class Replay:
    """Makes jobs of the journal's rows. Lives on the event loop."""

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
