"""Training requests, but saves: models are made and loaded, passes and steps are taken.

What is wrong with the data of a request fails its future: a refusal of one chunk of a call would leave the SDK's client
waiting for ever.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tinker import types
from tinker.types.optimizer import OptimizerConfigBase

from cookhouse.engine.contract import (
    Create,
    ForwardBackward,
    ForwardBackwardOutput,
    Load,
    LoraSpec,
    Pass,
    Step,
)
from cookhouse.errors import InputError
from cookhouse.losses.policy_losses import POLICY_LOSSES, STABLE_REINFORCE
from cookhouse.naming import listed
from cookhouse.server.access.hosted_rules import (
    LOAD_NOT_FIRST,
    RANK_NOT_POSITIVE,
    SAMPLER_PATH_LOADED,
    Breach,
    HostedRules,
    rank_breaches,
)
from cookhouse.server.requests.checkpoint_files import CheckpointFiles
from cookhouse.server.requests.data_rules import DataRules
from cookhouse.server.requests.fair_lock import FairLock
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
from cookhouse.server.requests.recordings import Recordings
from cookhouse.server.sequencer.futures import PROTOBUF, Result
from cookhouse.server.sequencer.queues import Attempt
from cookhouse.server.sessions.sessions import Model, Sessions
from cookhouse.server.settings import Settings
from cookhouse.server.storage.checkpoints.checkpoint import StoredCheckpoint
from cookhouse.server.storage.storage import Storage
from cookhouse.server.storage.store.rows import CheckpointRow, RunRow
from cookhouse.server.wire import (
    JsonTraining,
    TrainingHead,
    decode_adam,
    decode_lora,
    decode_pass,
    encode_pass,
    parse_training,
)

_OWN_OBJECTIVE = "own: an objective of this server's, not that of the hosted service, which is not published"
_OWN_METRIC = "stable_reinforce_is_own:max"
_NO_STABLE_REINFORCE = (
    f"loss {STABLE_REINFORCE!r} is refused: its objective is not published; use loss_fn={listed(POLICY_LOSSES, 'or')}. "
    f"This server's operator may have it train by an objective of ours: serve --stable-reinforce own"
)
_NO_TRAINING = "this server only samples; its operator starts one that trains without --samplers-only"
_MAX_REASON_CHARACTERS = 1000
_INLINE_BYTES = 64 * 2**10
_INLINE_BODY_BYTES = 16 * 2**10
"""Of requests, which may be all of small messages."""

Fill = Callable[[Attempt, Model], Awaitable[Mapping[str, str]]]
"""Makes a model in the engine; returns the answer, less the model's id."""
Decoded = tuple[TrainingHead, ForwardBackward | InputError]
"""Whose pass it is, and the pass itself or what is wrong with it."""


class TrainingRequests:
    """Methods return what is planned for a request. `drawn` is what `draw` gave when it was first planned."""

    def __init__(
        self,
        *,
        base_models: OfferedModels,
        reading: FairLock,
        recordings: Recordings,
        rules: HostedRules,
        sessions: Sessions,
        settings: Settings,
        storage: Storage,
    ) -> None:
        self._base_models = base_models
        self._files = CheckpointFiles(storage.checkpoints, storage.journal)
        self._reading = reading
        self._recordings = recordings
        self._data_rules = DataRules(rules, reading)
        self._rules = rules
        self._sessions = sessions
        self._settings = settings
        self._checkpoints = storage.checkpoints
        self._store = storage.store

    async def needed(self, _owner: str, request: types.CreateModelRequest) -> Mapping[str, Any]:
        """Values to draw for a new model: those that a server needs to make it again."""
        if request.lora_config is not None and request.lora_config.rank < 0:
            self._rules.refuse(RANK_NOT_POSITIVE.broken())
        return {"base_model": request.base_model}

    def create_model(self, owner: str, request: types.CreateModelRequest, drawn: Drawn) -> RequestPlan:
        """The making of an adapter; a duplicate gets the model of the first one."""
        if not request.base_model:
            raise InputError("base_model is required")
        _check_optimizer(request.optimizer_config)
        info = self._base_models.named(request.base_model)
        lora = decode_lora(request.lora_config, seed=drawn["seed"], max_rank=info.max_lora_rank)

        async def fill(attempt: Attempt, model: Model) -> Mapping[str, str]:
            await attempt.send(Create(**identity_of(model), base_model=info.name, lora=lora))
            return {"type": "create_model"}

        identity = request.session_id, request.model_seq_id
        breaches = [*rank_breaches(lora.rank), *self._base_models.breaches(request.base_model)]
        return self._make(owner, identity, request.base_model, lora, request.user_metadata, fill, drawn, breaches)

    async def found(self, owner: str, request: types.LoadWeightsRequest) -> Mapping[str, Any]:
        """Values to draw for a load: the checkpoint that it names now."""
        kept, is_own = await asyncio.to_thread(self._find, request.path, owner)
        return {"checkpoint": asdict(kept.row), "folder": None if is_own else str(kept.folder.absolute())}

    def _find(self, path: str, owner: str) -> tuple[StoredCheckpoint, bool]:
        """A checkpoint, and whether it is one of this service's; blocking."""
        kept = self._checkpoints.find_loadable(path, owner)
        return kept, kept.folder == self._checkpoints.folder_of(kept.row)

    def load_weights(self, owner: str, request: types.LoadWeightsRequest, drawn: Drawn) -> RequestPlan:
        """The loading of a checkpoint, into a new model or an existing one. `drawn` has what `found` found."""
        _check_optimizer(request.optimizer_config)
        checkpoint = CheckpointRow(**drawn["checkpoint"])
        base_model = checkpoint.base_model if request.base_model is None else request.base_model
        if not self._base_models.are_same(base_model, checkpoint.base_model):
            raise InputError(
                f"{request.path} was trained on {checkpoint.base_model!r} and cannot be loaded over "
                f"{request.base_model!r}; leave base_model out"
            )

        is_of_sampler = checkpoint.kind == "sampler_weights"
        breaches = [SAMPLER_PATH_LOADED.broken(path=request.path)] if is_of_sampler else []

        async def fill(attempt: Attempt, model: Model) -> Mapping[str, str]:
            if drawn["folder"] is None:
                folder = await asyncio.to_thread(self._checkpoints.folder_of, checkpoint)
            else:
                folder = Path(drawn["folder"])
            kept = StoredCheckpoint(row=checkpoint, folder=folder)
            await self._load(attempt, model, kept, drawn["id"], with_optimizer=request.optimizer)
            return {"type": "load_weights", "path": request.path}

        if request.session_id is not None and request.model_seq_id is not None:
            identity = request.session_id, request.model_seq_id
            breaches += self._base_models.breaches(base_model)
            lora = checkpoint.lora_spec
            return self._make(owner, identity, base_model, lora, request.user_metadata, fill, drawn, breaches)
        model = self._sessions.model(request.model_id or "", owner)

        async def reload(attempt: Attempt) -> Result:
            return Result.of_json({**await fill(attempt, model), "model_id": model.model_id})

        if request.seq_id is not None and request.seq_id > 1:
            breaches.append(LOAD_NOT_FIRST.broken(seq_id=request.seq_id))
        return plan_of(model, request.seq_id, reload, breaches=breaches)

    async def read_pass(self, owner: str, body: bytes | bytearray) -> Decoded:
        """Decode a pass; a large one off the event loop, one at a time."""
        max_bytes = self._settings.max_decoded_bytes
        if len(body) <= _INLINE_BODY_BYTES:
            return _decode(body, max_bytes)
        async with self._reading.hold(owner):
            return await asyncio.to_thread(_decode, body, max_bytes)

    async def read_json(self, owner: str, training: JsonTraining) -> Decoded:
        """The same of a pass that came in JSON."""
        head, request = await self.read_pass(owner, training.message)
        return head if training.has_seq_id else replace(head, seq_id=None), training.problem or request

    async def refusal(self, owner: str, decoded: Decoded) -> Mapping[str, Any]:
        """Values to draw for a pass: the reason why it is refused, where that depends on more than what is kept of the
        request.
        """
        head, request = decoded
        if head.message.loss_fn == STABLE_REINFORCE and not self._settings.stable_reinforce:
            return {"refusal": _NO_STABLE_REINFORCE}
        if isinstance(request, InputError):
            return {"refusal": str(request)[:_MAX_REASON_CHARACTERS]}
        model = self._sessions.model(head.model_id, owner)
        context = self._base_models.named(model.base_model).max_context_tokens
        failure = await self._data_rules.check(model, context, head, request)
        if failure is not None:
            return {"refusal": failure}
        if head.message.loss_fn != STABLE_REINFORCE:
            return {}
        try:
            async with self._reading.hold(owner):
                await asyncio.to_thread(self._recordings.check, model.session_id, owner, head, request)
        except InputError as error:
            return {"refusal": str(error)}
        return {}

    def forward_backward(self, owner: str, decoded: Decoded, drawn: Drawn) -> RequestPlan:
        head, request = decoded
        model = self._sessions.model(head.model_id, owner)
        if "refusal" in drawn:
            return refusal_of(model, head.seq_id, InputError(drawn["refusal"]))
        if isinstance(request, InputError):
            return refusal_of(model, head.seq_id, request)
        run = partial(_run_pass, model, request)
        return plan_of(model, head.seq_id, run, num_bytes=request.num_bytes, changes_model=not request.forward_only)

    def optim_step(self, owner: str, request: types.OptimStepRequest, _drawn: Drawn) -> RequestPlan:
        model = self._sessions.model(request.model_id, owner)
        try:
            step = decode_adam(request.optim_params)
        except InputError as error:
            return refusal_of(model, request.seq_id, error)

        async def run(attempt: Attempt) -> Result:
            metrics = await attempt.send(Step(**identity_of(model), adam=step))
            assert isinstance(metrics, Mapping)
            # The SDK's JSON parser takes no NaN or infinity.
            finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
            return Result.of_json({"type": "optim_step", "metrics": finite})

        return plan_of(model, request.seq_id, run)

    def _make(
        self,
        owner: str,
        identity: tuple[str, int],
        base_model: str,
        lora: LoraSpec,
        user_metadata: Mapping[str, Any] | None,
        fill: Fill,
        drawn: Drawn,
        breaches: Sequence[Breach],
    ) -> RequestPlan:
        """The making of the model of (session, `model_seq_id`) by `fill`."""
        if self._settings.samplers_only:
            raise InputError(_NO_TRAINING)
        session_id, seq_id = identity
        check_seq_id("model_seq_id", seq_id)
        session = self._sessions.session(session_id, owner)
        model_id = f"{session_id}:train:{seq_id}"
        model = session.models.get(seq_id) or Model(
            model_id=model_id, session_id=session_id, owner=owner, base_model=base_model, lora=lora, seq_id=seq_id
        )
        row = RunRow(
            model_id=model_id,
            session_id=session_id,
            owner=owner,
            base_model=base_model,
            lora=asdict(lora),
            created_at=drawn["at"],
            last_request_at=drawn["at"],
            user_metadata={**(user_metadata or {}), **self._own_losses()},
            model_seq_id=seq_id,
        )

        async def run(attempt: Attempt) -> Result:
            content = await fill(attempt, model)
            self._store.add_run(row)
            return Result.of_json({**content, "model_id": model_id})

        request_id = request_id_of(model_id, "creation")

        def register() -> None:
            model.creation = request_id
            self._sessions.add_model(model)

        return RequestPlan(
            model=model,
            request_id=request_id,
            seq_id=None,
            run=run,
            is_creation=True,
            breaches=breaches,
            on_accepted=register,
        )

    def _own_losses(self) -> Mapping[str, str]:
        """Metadata of a run on losses that are computed otherwise than at the hosted service."""
        return {STABLE_REINFORCE: _OWN_OBJECTIVE} if self._settings.stable_reinforce else {}

    async def _load(
        self, attempt: Attempt, model: Model, kept: StoredCheckpoint, load_id: str, *, with_optimizer: bool
    ) -> None:
        checkpoint = kept.row
        lora = checkpoint.lora_spec
        if with_optimizer and not checkpoint.has_optimizer:
            raise InputError(f"{checkpoint.path} has weights only; load it without the optimizer")
        is_same_base = self._base_models.are_same(model.base_model, checkpoint.base_model)
        if not is_same_base or replace(model.lora, seed=lora.seed) != lora:
            raise InputError(
                f"{checkpoint.path} has {lora} over {checkpoint.base_model!r}, the model has {model.lora} over "
                f"{model.base_model!r}; make a new training client from the checkpoint"
            )
        base_model = self._base_models.named(checkpoint.base_model).name
        async with self._files.own(kept, load_id) as own, self._files.opened(own) as url:
            command = Load(
                **identity_of(model),
                base_model=base_model,
                lora=lora,
                url=url,
                sha256=checkpoint.sha256,
                with_optimizer=with_optimizer,
            )
            await attempt.send(command)
        if checkpoint.kind == "weights":
            model.last_checkpoint = checkpoint.path


async def _run_pass(model: Model, request: ForwardBackward, attempt: Attempt) -> Result:
    output = await attempt.send(Pass(**identity_of(model), request=request))
    assert isinstance(output, ForwardBackwardOutput)
    if request.loss_fn == STABLE_REINFORCE:
        output = replace(output, metrics={**output.metrics, _OWN_METRIC: 1.0})
    if sum(logprobs.nbytes for logprobs in output.logprobs_D) > _INLINE_BYTES:
        body = await asyncio.to_thread(encode_pass, output)
    else:
        body = encode_pass(output)
    return Result(body=body, media_type=PROTOBUF, kind="forward_backward")


def _decode(body: bytes | bytearray, max_bytes: int) -> Decoded:
    head = parse_training(body)
    try:
        return head, decode_pass(head, max_bytes=max_bytes)
    except InputError as error:
        return head, error


def _check_optimizer(config: OptimizerConfigBase | None) -> None:
    if config is not None and config.type != "adamw":
        raise InputError(f"optimizer {config.type!r} is not supported; this server has adamw")
