"""The reference of a run: settled at its start, written down, and the same after a resume."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cookhouse.errors import InputError
from cookhouse.files import file_errors, write_whole
from cookhouse.pair_losses import PAIR_LOSSES
from cookhouse.registry import ModelRegistry
from cookhouse.runs import RunFolder
from cookhouse.runs.names import REFERENCE_FILE, REFERENCE_LOGPROBS_FILE
from cookhouse.training import PairLossOffer, TrainingSession, service_errors
from cookhouse.weights.names import find_weights
from cookhouse.workflows.base.second_model import sampler_at
from cookhouse.workflows.preference.reference import (
    AnswerSums,
    NoReference,
    Reference,
    ServiceReference,
    sums_by_forward,
    sums_by_sampler,
)

_STATE = "/weights/"
"""In the path of weights that can be trained on, unlike those saved to sample from."""


class ReferencedSettings(Protocol):
    """What says which weights are the reference: those of a run that begins with these."""

    @property
    def pair_loss(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def load_checkpoint_path(self) -> str | None: ...
    @property
    def lora_rank(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def reference_model(self) -> str | None: ...
    @property
    def cache_reference(self) -> bool: ...


async def open_reference(
    config: ReferencedSettings,
    session: TrainingSession,
    folder: RunFolder,
    registry: ModelRegistry | None,
    offer: PairLossOffer | None = None,
) -> Reference:
    """The reference that the loss needs, at the service; `offer` where that computes the loss.

    That is `reference_model`, or what the run began with: the base model or, where it began with other weights, a copy
    of them that is the run's own, so that it does not matter what becomes of the original. A resumed run goes on with
    what its folder names. Weights that can be trained at the service are asked by `forward`, a batch at a time; others,
    and those of runs that train all weights, which would need memory for a second one, are asked as a sampler is.

    Raises:
        InputError: the service does not have these weights, or the folder does not say which they are.
        ServiceError: it failed.
    """
    if not PAIR_LOSSES.find(config.pair_loss).needs_reference:
        return NoReference()
    cache = folder.path / REFERENCE_LOGPROBS_FILE
    record = folder.path / REFERENCE_FILE
    if folder.resume is None:
        place = await _settle(config, session, registry)
        with file_errors(cache):
            cache.unlink(missing_ok=True)
        write_whole(record, json.dumps(dict(place)) + "\n")
    else:
        place = _recorded(record)
    ask = await _asked(config, session, place, offer)
    return ServiceReference(ask, cache if config.cache_reference else None)


async def _asked(
    config: ReferencedSettings, session: TrainingSession, place: Mapping[str, str], offer: PairLossOffer | None
) -> AnswerSums:
    service, path = session.service, place.get("model_path", "")
    with service_errors(f"opening the reference {' '.join(place.values())}"):
        if place.get("base_model") == config.model_name:
            # A fresh adapter changes nothing of the base model's output, and none is smaller than this one.
            client = await service.create_lora_training_client(config.model_name, rank=1, seed=config.seed)
            return sums_by_forward(client, offer)
        if config.lora_rank and _STATE in path:
            return sums_by_forward(await service.create_training_client_from_state(path), offer)
    return sums_by_sampler((await sampler_at(service, place)).compute_logprobs)


async def _settle(
    config: ReferencedSettings, session: TrainingSession, registry: ModelRegistry | None
) -> Mapping[str, str]:
    if config.reference_model is not None:
        return find_weights(config.reference_model, registry).place("training" if config.lora_rank else "sampling")
    if config.load_checkpoint_path is None:
        return {"base_model": config.model_name}
    with service_errors("saving the reference"):
        if config.lora_rank:
            return {"model_path": (await session.client.save_state("reference")).path}
        return {"model_path": (await session.client.save_weights_for_sampler("reference")).path}


def _recorded(record: Path) -> Mapping[str, str]:
    try:
        place = json.loads(record.read_text(encoding="utf-8"))
        if set(place) not in ({"model_path"}, {"base_model"}) or not all(isinstance(x, str) for x in place.values()):
            raise ValueError("it names neither a base_model nor a model_path")
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{record} does not say what the reference of this run is ({error}); start a new run in another log_path"
        ) from error
    return {str(name): str(value) for name, value in place.items()}
