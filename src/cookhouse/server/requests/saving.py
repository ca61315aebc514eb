"""Saves of a model: training state, weights for samplers, and weights for other libraries.

Training state and weights for samplers are copied in memory, in the order of the requests, and written to disk by a
thread of its own while training goes on: a save is of the step after which it was requested, and acknowledged when on
disk. Weights for other libraries, and training state that does not fit into memory twice, keep the engine waiting.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tinker import types

from cookhouse.engine.contract import Engine
from cookhouse.errors import CookhouseError, InputError
from cookhouse.model_names import plain_name
from cookhouse.server.checkpoints.checkpoint import NewCheckpoint
from cookhouse.server.checkpoints.checkpoints import Checkpoints
from cookhouse.server.requests.base_models import BaseModels
from cookhouse.server.sequencer.futures import Future, Futures, Result
from cookhouse.server.sequencer.intake import Intake
from cookhouse.server.sequencer.sequencer import Sequencer
from cookhouse.server.sessions.sessions import Model, Sampler, Sessions, Snapshot
from cookhouse.server.sessions.snapshots import Snapshots
from cookhouse.server.store.store import CheckpointKind, SamplerRow, Store

_log = logging.getLogger(__name__)
_MAX_COPIES = 4
"""Copies of weights that may wait for the disk; the engine waits for one to be written before the next."""


class SaveRequests:
    """Methods return the request id to answer with."""

    def __init__(
        self,
        *,
        base_models: BaseModels,
        checkpoints: Checkpoints,
        futures: Futures,
        intake: Intake,
        sequencer: Sequencer,
        sessions: Sessions,
        snapshots: Snapshots,
        store: Store,
        writer: Executor,
    ) -> None:
        self._base_models = base_models
        self._checkpoints = checkpoints
        self._futures = futures
        self._intake = intake
        self._sequencer = sequencer
        self._sessions = sessions
        self._snapshots = snapshots
        self._store = store
        self._writer = writer
        self._copies = threading.BoundedSemaphore(_MAX_COPIES)

    def save_state(self, owner: str, request: types.SaveWeightsRequest) -> str:
        """Queue the writing of weights and optimizer state."""
        model = self._sessions.model(request.model_id, owner)
        new = _new_checkpoint(
            model,
            "weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=request.user_metadata,
            overwrite=request.overwrite,
        )

        def run(engine: Engine, future: Future) -> None:
            self._checkpoints.check(new)
            with self._copy():
                copied = engine.copy_state(model.model_id, with_optimizer=True)
                write = copied or partial(engine.save_state, model.model_id, with_optimizer=True)
                written = self._writer.submit(self._write_state, write, new, future)
            if copied is None:
                written.result()  # nothing else may call the engine meanwhile

        return self._intake.accept(model, request.seq_id, run)

    def save_for_sampler(self, owner: str, request: types.SaveWeightsForSamplerRequest) -> str:
        """Queue a snapshot: named, to be kept on disk, or unnamed, for one new sampler."""
        model = self._sessions.model(request.model_id, owner)
        if request.kind != "snapshot":
            error = InputError(f"samplers of kind {request.kind!r} are not supported; use 'snapshot'")
            return self._intake.refuse(model, request.seq_id, error)
        if request.sampling_session_seq_id is not None:
            return self._publish(model, request.seq_id, request.sampling_session_seq_id)
        return self._save_named(model, request)

    def save_external(self, owner: str, request: types.SaveWeightsExternalRequest) -> str:
        """Queue the writing of a PEFT adapter, to be downloaded."""
        model = self._sessions.model(request.model_id, owner)
        if request.age_encryption_recipients:
            error = InputError(
                "this server does not encrypt files (age_encryption_recipients); save without it, and encrypt what you "
                "download"
            )
            return self._intake.refuse(model, request.seq_id, error)
        new = _new_checkpoint(
            model,
            "external_weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=None,
            overwrite=False,
        )

        def run(engine: Engine, _future: Future) -> Result:
            write = partial(engine.save_peft, model.model_id, base_name=plain_name(model.base_model))
            row = self._checkpoints.write(new, write)
            return Result.of_json({"type": "save_weights_external", "path": row.path})

        return self._intake.accept(model, request.seq_id, run)

    def _publish(self, model: Model, seq_id: int | None, sampler_seq_id: int) -> str:
        known = self._intake.known(model, seq_id)
        if known is not None:
            return known
        if self._sessions.has_sampler(model.session_id, sampler_seq_id):
            error = InputError(
                f"sampling_session_seq_id {sampler_seq_id} of this session is in use; give each sampler its own"
            )
            return self._intake.refuse(model, seq_id, error)
        base_model = self._base_models.named(model.base_model).name
        snapshot = Snapshot(
            snapshot_id=uuid.uuid4().hex,
            owner=model.owner,
            base_model=base_model,
            lora=model.lora,
            model_id=model.model_id,
        )
        sampler = Sampler(
            sampler_id=f"{model.session_id}:sample:{sampler_seq_id}",
            session_id=model.session_id,
            owner=model.owner,
            base_model=model.base_model,
            snapshot=snapshot,
        )
        row = SamplerRow(
            sampler_id=sampler.sampler_id,
            session_id=sampler.session_id,
            owner=sampler.owner,
            base_model=sampler.base_model,
            model_path=None,
            created_at=time.time(),
        )

        def run(engine: Engine, _future: Future) -> Result:
            self._snapshots.admit(engine)
            engine.snapshot(model.model_id, snapshot.snapshot_id)
            self._snapshots.add(engine, snapshot)
            self._store.add_sampler(row)
            return Result.of_json({"type": "save_weights_for_sampler", "sampling_session_id": sampler.sampler_id})

        request_id = self._intake.accept(model, seq_id, run)
        self._sessions.add_sampler(sampler, sampler_seq_id)
        return request_id

    def _save_named(self, model: Model, request: types.SaveWeightsForSamplerRequest) -> str:
        new = _new_checkpoint(
            model,
            "sampler_weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=request.user_metadata,
            overwrite=False,
        )

        def run(engine: Engine, future: Future) -> None:
            self._checkpoints.check(new)
            snapshot_id = uuid.uuid4().hex
            with self._copy():
                engine.snapshot(model.model_id, snapshot_id)
                self._writer.submit(self._write_snapshot, engine, snapshot_id, new, future)

        return self._intake.accept(model, request.seq_id, run)

    @contextmanager
    def _copy(self) -> Iterator[None]:
        """Wait until one more copy may wait for the disk. The writer gives the place back, if it is handed over."""
        self._copies.acquire()
        try:
            yield
        except BaseException:
            self._copies.release()
            raise

    def _write_state(self, write: Callable[[Path], None], new: NewCheckpoint, future: Future) -> None:
        """Runs in the writer's thread."""
        try:
            self._finish_written("save_weights", write, new, future)
        finally:
            self._copies.release()

    def _write_snapshot(self, engine: Engine, snapshot_id: str, new: NewCheckpoint, future: Future) -> None:
        """Runs in the writer's thread, which the engine allows for `save_snapshot`."""
        try:
            write = partial(engine.save_snapshot, snapshot_id, is_durable=True)
            self._finish_written("save_weights_for_sampler", write, new, future)
        finally:
            self._sequencer.errand(lambda engine: engine.delete_snapshot(snapshot_id))
            self._copies.release()

    def _finish_written(self, kind: str, write: Callable[[Path], None], new: NewCheckpoint, future: Future) -> None:
        """Write a checkpoint and tell whoever waits for it."""
        try:
            row = self._checkpoints.write(new, write)
            result = Result.of_json({"type": kind, "path": row.path})
        except Exception as error:
            if not isinstance(error, CookhouseError):
                _log.exception("a checkpoint could not be written")
            result = Result.of_error(error)
        self._futures.finish_threadsafe(future, result)


def _new_checkpoint(
    model: Model,
    kind: CheckpointKind,
    name: str | None,
    *,
    ttl_seconds: int | None,
    user_metadata: Mapping[str, str] | None,
    overwrite: bool,
) -> NewCheckpoint:
    return NewCheckpoint(
        model_id=model.model_id,
        kind=kind,
        name=name,
        owner=model.owner,
        base_model=model.base_model,
        lora=model.lora,
        has_optimizer=kind == "weights",
        ttl_seconds=ttl_seconds,
        overwrite=overwrite,
        user_metadata=user_metadata or {},
    )
