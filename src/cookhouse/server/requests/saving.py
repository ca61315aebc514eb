"""Saves of a model: training state, weights for samplers, and weights for other libraries.

The engine copies what it saves in the order of the requests, and writes it to a new folder while training goes on; then
checksums are made and the row is written here, by a thread of its own. A save is of the step after which it was
requested, and acknowledged when on disk.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Executor

from tinker import types

from cookhouse.engine.contract import Form, Publish, Save
from cookhouse.errors import InputError
from cookhouse.model_names import plain_name
from cookhouse.server.checkpoints.checkpoint import NewCheckpoint
from cookhouse.server.checkpoints.checkpoints import Checkpoints, check_name, unwritten
from cookhouse.server.refusals import DiskError
from cookhouse.server.requests.base_models import BaseModels
from cookhouse.server.requests.commands import identity_of
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sequencer.intake import Intake
from cookhouse.server.sequencer.sequencer import Run, Turn
from cookhouse.server.sessions.sessions import Model, Sampler, Sessions, Snapshot
from cookhouse.server.store.rows import CheckpointKind, SamplerRow
from cookhouse.server.store.store import Store

_FORMS: Mapping[CheckpointKind, Form] = {
    "weights": "state",
    "sampler_weights": "weights",
    "external_weights": "peft",
}
_TYPES: Mapping[CheckpointKind, str] = {
    "weights": "save_weights",
    "sampler_weights": "save_weights_for_sampler",
    "external_weights": "save_weights_external",
}
"""What an answer calls itself."""


class SaveRequests:
    """Methods return the request id to answer with."""

    def __init__(
        self,
        *,
        base_models: BaseModels,
        checkpoints: Checkpoints,
        intake: Intake,
        sessions: Sessions,
        store: Store,
        writer: Executor,
    ) -> None:
        self._base_models = base_models
        self._checkpoints = checkpoints
        self._intake = intake
        self._sessions = sessions
        self._store = store
        self._writer = writer

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

        return self._intake.accept(model, request.seq_id, self._saving(model, new))

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

        return self._intake.accept(model, request.seq_id, self._saving(model, new))

    def _publish(self, model: Model, seq_id: int | None, sampler_seq_id: int) -> str:
        known = self._intake.known(model, seq_id)
        if known is not None:
            return known
        if self._sessions.has_sampler(model.session_id, sampler_seq_id):
            error = InputError(
                f"sampling_session_seq_id {sampler_seq_id} of this session is in use; give each sampler its own"
            )
            return self._intake.refuse(model, seq_id, error)
        snapshot = Snapshot(
            snapshot_id=uuid.uuid4().hex,
            owner=model.owner,
            base_model=self._base_models.named(model.base_model).name,
            lora=model.lora,
            is_published=True,
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

        async def run(turn: Turn) -> Result:
            await turn.send(Publish(**identity_of(model), snapshot_id=snapshot.snapshot_id))
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

        return self._intake.accept(model, request.seq_id, self._saving(model, new))

    def _saving(self, model: Model, new: NewCheckpoint) -> Run:
        """Has the engine write a folder, and makes it a checkpoint."""

        async def run(turn: Turn) -> Result:
            name = check_name(new)
            folder = self._checkpoints.new_folder()
            command = Save(
                **identity_of(model),
                url=folder.absolute().as_uri(),
                form=_FORMS[new.kind],
                with_optimizer=new.has_optimizer,
                base_name=plain_name(model.base_model),
            )
            loop = asyncio.get_running_loop()
            try:
                await turn.send(command)
            except BaseException as error:
                loop.run_in_executor(self._writer, self._checkpoints.abandon, folder)
                if isinstance(error, DiskError):
                    raise unwritten(f"tinker://{model.model_id}/{new.kind}/{name}", error.reason) from error
                raise
            row = await loop.run_in_executor(self._writer, self._checkpoints.commit, new, folder)
            if new.kind == "weights":
                model.last_checkpoint = row.path
            return Result.of_json({"type": _TYPES[new.kind], "path": row.path})

        return run


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
