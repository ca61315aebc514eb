"""Saves of a model: training state, weights for samplers, and weights for other libraries.

The engine copies what it saves in the order of the requests, and writes it to a new folder while training goes on; then
checksums are made and the row is written here, by a thread of its own. A save is of the step after which it was
requested, and acknowledged when on disk.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tinker import types

from cookhouse.engine.contract import Form, Publish, Save
from cookhouse.errors import InputError
from cookhouse.models.names import plain_name
from cookhouse.server.access.hosted_rules import NAME_EXISTS, HostedRules
from cookhouse.server.refusals import DiskError
from cookhouse.server.requests.intake import (
    Drawn,
    RequestPlan,
    check_seq_id,
    identity_of,
    plan_of,
    refusal_of,
    request_id_of,
)
from cookhouse.server.requests.offered_models import OfferedModels
from cookhouse.server.sequencer.futures import Result
from cookhouse.server.sequencer.queues import Attempt
from cookhouse.server.sessions.sessions import Model, Sampler, SamplerWeights, Sessions
from cookhouse.server.storage.checkpoints.checkpoint import NewCheckpoint, check_name, unwritten
from cookhouse.server.storage.checkpoints.encryption import Recipients, parse_recipients
from cookhouse.server.storage.journal import AddSampler
from cookhouse.server.storage.storage import Storage
from cookhouse.server.storage.store.rows import CheckpointKind, CheckpointRow, SamplerRow

_FORMS: Mapping[CheckpointKind, Form] = {
    "weights": "state",
    "sampler_weights": "weights",
    "external_weights": "external",
}
_TYPES: Mapping[CheckpointKind, str] = {
    "weights": "save_weights",
    "sampler_weights": "save_weights_for_sampler",
    "external_weights": "save_weights_external",
}
"""What an answer calls itself."""


class SaveRequests:
    """Methods return what is planned for a request. `drawn` is what `draw` gave when it was first planned."""

    def __init__(
        self,
        *,
        base_models: OfferedModels,
        rules: HostedRules,
        sessions: Sessions,
        storage: Storage,
    ) -> None:
        self._base_models = base_models
        self._checkpoints = storage.checkpoints
        self._rules = rules
        self._sessions = sessions
        self._store = storage.store
        self._writer = storage.writer

    async def taken(
        self,
        kind: CheckpointKind,
        owner: str,
        request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest | types.SaveWeightsExternalRequest,
    ) -> Mapping[str, Any]:
        """Values to draw for a save: the checkpoint that has its name, where that is refused at once."""
        overwrites = isinstance(request, types.SaveWeightsRequest) and request.overwrite
        if not self._rules.is_strict or request.path is None or overwrites:
            return {}
        named = await asyncio.to_thread(self._store.checkpoint, request.model_id, kind, request.path, owner)
        return {} if named is None else {"taken": named.path}

    def save_state(self, owner: str, request: types.SaveWeightsRequest, drawn: Drawn) -> RequestPlan:
        """The writing of weights and optimizer state."""
        model = self._sessions.model(request.model_id, owner)
        new = _new_checkpoint(
            model,
            "weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=request.user_metadata,
            overwrite=request.overwrite,
        )
        return self._save(model, request.seq_id, new, drawn)

    def save_for_sampler(self, owner: str, request: types.SaveWeightsForSamplerRequest, drawn: Drawn) -> RequestPlan:
        """A snapshot: named, to be kept on disk, or unnamed, for one new sampler."""
        model = self._sessions.model(request.model_id, owner)
        if request.kind != "snapshot":
            error = InputError(f"samplers of kind {request.kind!r} are not supported; use 'snapshot'")
            return refusal_of(model, request.seq_id, error)
        if request.sampling_session_seq_id is not None:
            return self._publish(model, request.seq_id, request.sampling_session_seq_id, drawn)
        new = _new_checkpoint(
            model,
            "sampler_weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=request.user_metadata,
            overwrite=False,
        )
        return self._save(model, request.seq_id, new, drawn)

    def save_external(self, owner: str, request: types.SaveWeightsExternalRequest, drawn: Drawn) -> RequestPlan:
        """The writing of an adapter for other libraries, to be downloaded; encrypted, where keys are given."""
        model = self._sessions.model(request.model_id, owner)
        keys = request.age_encryption_recipients
        try:
            recipients = () if keys is None else parse_recipients(keys)
        except InputError as error:
            return refusal_of(model, request.seq_id, error)
        new = _new_checkpoint(
            model,
            "external_weights",
            request.path,
            ttl_seconds=request.ttl_seconds,
            user_metadata=None,
            overwrite=False,
            recipients=recipients,
        )
        return self._save(model, request.seq_id, new, drawn)

    def _publish(self, model: Model, seq_id: int | None, sampler_seq_id: int, drawn: Drawn) -> RequestPlan:
        check_seq_id("sampling_session_seq_id", sampler_seq_id)
        request_id = request_id_of(model.model_id, seq_id)
        sampler = self._sessions.peek_sampler(model.session_id, sampler_seq_id)
        if sampler is not None and sampler.creation != request_id:
            error = InputError(
                f"sampling_session_seq_id {sampler_seq_id} of this session is in use; give each sampler its own"
            )
            return refusal_of(model, seq_id, error)
        if sampler is None:
            sampler = self._new_sampler(model, sampler_seq_id, drawn["id"], request_id)
        snapshot = sampler.snapshot
        assert snapshot is not None
        row = SamplerRow(
            sampler_id=sampler.sampler_id,
            session_id=sampler.session_id,
            owner=sampler.owner,
            base_model=sampler.base_model,
            model_path=None,
            created_at=drawn["at"],
            seq_id=sampler_seq_id,
            snapshot_id=snapshot.snapshot_id,
            lora=asdict(model.lora),
        )

        async def run(attempt: Attempt) -> Result:
            if not snapshot.has_file:  # else it was published, and this is a replay
                await attempt.send(Publish(**identity_of(model), snapshot_id=snapshot.snapshot_id))
            self._store.add_sampler(row)
            return Result.of_json({"type": "save_weights_for_sampler", "sampling_session_id": sampler.sampler_id})

        def register() -> None:
            model.snapshots[snapshot.snapshot_id] = snapshot
            self._sessions.add_sampler(sampler)

        return plan_of(model, seq_id, run, rows=[AddSampler(row)], on_accepted=register)

    def _new_sampler(self, model: Model, sampler_seq_id: int, snapshot_id: str, request_id: str) -> Sampler:
        sampler_id = f"{model.session_id}:sample:{sampler_seq_id}"
        snapshot = SamplerWeights(
            snapshot_id=snapshot_id,
            owner=model.owner,
            base_model=self._base_models.named(model.base_model).name,
            lora=model.lora,
            is_published=True,
            sampler_id=sampler_id,
        )
        return Sampler(
            sampler_id=sampler_id,
            session_id=model.session_id,
            owner=model.owner,
            base_model=model.base_model,
            snapshot=snapshot,
            seq_id=sampler_seq_id,
            creation=request_id,
        )

    def _save(self, model: Model, seq_id: int | None, new: NewCheckpoint, drawn: Drawn) -> RequestPlan:
        """Has the engine write a folder, and makes it a checkpoint."""

        async def run(attempt: Attempt) -> Result:
            row = await self._write(attempt, model, new, drawn["id"])
            if new.kind == "weights":
                model.last_checkpoint = row.path
            return Result.of_json({"type": _TYPES[new.kind], "path": row.path})

        breaches = [NAME_EXISTS.broken(path=drawn["taken"])] if "taken" in drawn else []
        return plan_of(model, seq_id, run, changes_model=False, breaches=breaches)

    async def _write(self, attempt: Attempt, model: Model, new: NewCheckpoint, checkpoint_id: str) -> CheckpointRow:
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
            await attempt.send(command)
        except BaseException as error:
            loop.run_in_executor(self._writer, self._checkpoints.abandon, folder)
            if isinstance(error, DiskError):
                raise unwritten(f"tinker://{model.model_id}/{new.kind}/{name}", error.reason) from error
            raise
        return await loop.run_in_executor(self._writer, self._commit, new, folder, checkpoint_id)

    def _commit(self, new: NewCheckpoint, folder: Path, checkpoint_id: str) -> CheckpointRow:
        """Make a folder a checkpoint, unless the same request has made another one it. In the writer's thread."""
        row = self._checkpoints.known(checkpoint_id)
        if row is None:
            return self._checkpoints.commit(new, folder, checkpoint_id)
        self._checkpoints.abandon(folder)
        return row


def _new_checkpoint(
    model: Model,
    kind: CheckpointKind,
    name: str | None,
    *,
    ttl_seconds: int | None,
    user_metadata: Mapping[str, str] | None,
    overwrite: bool,
    recipients: Recipients = (),
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
        recipients=recipients,
    )
