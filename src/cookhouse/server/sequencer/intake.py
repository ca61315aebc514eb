"""Accepting training requests: each gets a future and a place in the queue, and a duplicate the future of the first."""

import time

from cookhouse.errors import CookhouseError, InputError
from cookhouse.server.refusals import LostError
from cookhouse.server.sequencer.futures import Future, Futures, Result
from cookhouse.server.sequencer.sequencer import Job, Run, Sequencer
from cookhouse.server.sessions.sessions import Model


class Intake:
    """Methods return the request id to answer with, and raise `BusyError` when the queue is full."""

    def __init__(self, futures: Futures, sequencer: Sequencer) -> None:
        self._futures = futures
        self._sequencer = sequencer
        self._heard_at: dict[str, float] = {}

    def accept(self, model: Model, seq_id: int | None, run: Run, *, num_bytes: int = 0) -> str:
        """Queue work on a model. `seq_id` None: the request has no identity, so every copy of it runs."""
        known = self.known(model, seq_id)
        if known is not None:
            return known
        if model.loss is not None:
            return self.refuse(model, seq_id, LostError(model.loss))
        future = self._new_future(model)
        try:
            self._sequencer.submit(model, seq_id, Job(future=future, run=run, num_bytes=num_bytes))
        except InputError:
            self._futures.drop(future.request_id)
            raise
        if seq_id is not None:
            model.requests[seq_id] = future.request_id
        return future.request_id

    def refuse(self, model: Model, seq_id: int | None, error: CookhouseError) -> str:
        """Answer with a future that has failed already."""
        known = self.known(model, seq_id)
        if known is not None:
            return known
        future = self._new_future(model)
        self._futures.finish(future, Result.of_error(error))
        if seq_id is not None:
            self._sequencer.note(model, seq_id)
            model.requests[seq_id] = future.request_id
        return future.request_id

    def known(self, model: Model, seq_id: int | None) -> str | None:
        """The request id that a duplicate of an accepted request gets."""
        self._heard_at[model.model_id] = time.time()
        return None if seq_id is None else model.requests.get(seq_id)

    def heard_at(self, model_id: str) -> float | None:
        """When a model was last heard of, if that is not in the store yet."""
        return self._heard_at.get(model_id)

    def taken_times(self) -> dict[str, float]:
        """When each model was last heard of, since the previous call."""
        taken, self._heard_at = self._heard_at, {}
        return taken

    def _new_future(self, model: Model) -> Future:
        return self._futures.create(owner=model.owner, session_id=model.session_id)
