"""Weights of the reference of a run over pairs, and their logprobs."""

from collections.abc import Mapping
from typing import Protocol

from cookhouse.files import file_errors
from cookhouse.losses.pair_losses import PAIR_LOSSES
from cookhouse.registry import ModelRegistry
from cookhouse.runs import RunFolder
from cookhouse.runs.names import REFERENCE_LOGPROBS_FILE
from cookhouse.training import PairLossOffer, TrainingSession, service_errors
from cookhouse.workflows.base.reference_place import reference_place
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

    That is `reference_model`, or what the run began with (`reference_place`). Weights that can be trained at the
    service are asked by `forward`, a batch at a time; others, and those of runs that train all weights, which would
    need memory for a second one, are asked as a sampler is.

    Raises:
        InputError: the service does not have these weights, or the folder does not say which they are.
        ServiceError: it failed.
    """
    if not PAIR_LOSSES.find(config.pair_loss).needs_reference:
        return NoReference()
    cache = folder.path / REFERENCE_LOGPROBS_FILE
    place = await reference_place(
        config,
        session,
        folder,
        registry,
        named=config.reference_model,
        purpose="training" if config.lora_rank else "sampling",
    )
    if folder.resume is None:
        with file_errors(cache):
            cache.unlink(missing_ok=True)
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
