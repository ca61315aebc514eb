"""The reference of a run over pairs: its weights at the service, its logprobs of answers, asked at most once each, and
the assembler that gives them to a loss.

Legend: T tokens of a sequence, P pairs.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.algorithms.base.reference_place import reference_place
from cookhouse.algorithms.base.second_model import sampler_at
from cookhouse.algorithms.pairs.calls import answer_sums, whole_pairs
from cookhouse.algorithms.pairs.dataset import Pair, interleaved
from cookhouse.data import Example
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import append_line, file_errors, whole_lines
from cookhouse.losses.pair_losses import BUILT_IN_PAIR_LOSSES, PAIR_LOSSES
from cookhouse.registry import ModelRegistry
from cookhouse.runs import RunFolder
from cookhouse.runs.names import REFERENCE_LOGPROBS_FILE
from cookhouse.telemetry import Telemetry
from cookhouse.training import Assembled, TrainingSession
from cookhouse.training.clients.client import PairLossOffer, TrainingClient
from cookhouse.training.clients.logprobs import ComputeLogprobs
from cookhouse.training.clients.session import service_errors

AnswerSums = Callable[[Sequence[Pair]], Awaitable[NDArray[np.float64]]]
"""Σ w·logprob of each answer, of shape (P, 2): chosen, rejected. NaN where a logprob is missing."""


def sums_by_forward(client: TrainingClient, offer: PairLossOffer | None = None) -> AnswerSums:
    """One `forward` for all: what a training client of the same weights computes for the same pairs, to the bit. Where
    a service computes losses over pairs, that is how they are then trained on, and it is asked for the sums alone.
    """
    # Of a loss over pairs only the sums are read: any does that needs no reference.
    fit = [name for name, loss in BUILT_IN_PAIR_LOSSES.items() if not loss.needs_reference]
    summing = None if offer is None else next((name for name in fit if name in offer.names), None)

    async def of_tokens(pairs: Sequence[Pair]) -> NDArray[np.float64]:
        output = await client.forward(interleaved(pairs), "cross_entropy")
        logprobs_D = [fields["logprobs"].to_numpy() for fields in output.loss_fn_outputs]
        return _sums(pairs, logprobs_D)

    async def of_pairs(pairs: Sequence[Pair]) -> NDArray[np.float64]:
        assert offer is not None
        name = cast("tinker.types.LossFnType", summing)
        outputs = [await call for call in [client.forward(d, name) for d in whole_pairs(interleaved(pairs), offer)]]
        return np.array([total for output in outputs for total in answer_sums(output)]).reshape(-1, 2)

    return of_tokens if summing is None else of_pairs


def sums_by_sampler(compute: ComputeLogprobs) -> AnswerSums:
    """A request for each answer, for weights that can only be sampled from."""

    async def one(example: Example) -> NDArray[Any]:
        logprobs = await compute(tinker.ModelInput.from_ints(example.tokens_T.tolist()))
        return np.array(logprobs[1:], dtype=np.float64)

    async def ask(pairs: Sequence[Pair]) -> NDArray[np.float64]:
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(one(each)) for pair in pairs for each in pair.examples]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return _sums(pairs, [task.result() for task in asking])

    return ask


def _sums(pairs: Sequence[Pair], logprobs_D: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    examples = [each for pair in pairs for each in pair.examples]
    return np.array([_sum(*each) for each in zip(examples, logprobs_D, strict=True)]).reshape(-1, 2)


def _sum(example: Example, logprobs_T: NDArray[Any]) -> float:
    """Over the targets: every token but the first, which nothing precedes."""
    # Where no weight is, a logprob may be of anything, also minus infinity.
    weights_T = example.weights_T[1:].astype(np.float64)
    is_trained_T = weights_T != 0
    if logprobs_T.shape != is_trained_T.shape:
        return float("nan")
    return float(np.sum(weights_T[is_trained_T] * logprobs_T[is_trained_T].astype(np.float64)))


class Reference(Protocol):
    """Reference with which answers are compared."""

    async def logprobs(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Σ w·logprob of each answer, of shape (P, 2): chosen, rejected."""


class NoReference:
    """For losses that need none."""

    async def logprobs(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        return np.zeros((len(pairs), 2))


class ServiceReference:
    """The reference's weights at the service. What they said is kept, so that a later epoch or evaluation, and with a
    file a resumed run too, has the same numbers.
    """

    def __init__(self, ask: AnswerSums, cache: Path | None = None) -> None:
        self._ask = ask
        self._cache = cache
        self._known: dict[str, float] = {} if cache is None else _read(cache)

    async def logprobs(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Asks for what is not known yet, all at once.

        Raises:
            InputError: the service refused an answer, or the file cannot be written.
            ServiceError: it failed, or gave no logprobs.
        """
        missing = [pair for pair in pairs if any(_key(each) not in self._known for each in pair.examples)]
        if missing:
            with service_errors("computing logprobs of the reference"):
                sums_P2 = await self._ask(missing)
            found = {
                _key(each): _finite(each, float(total))
                for pair, sums in zip(missing, sums_P2, strict=True)
                for each, total in zip(pair.examples, sums, strict=True)
            }
            if self._cache is not None:
                await asyncio.to_thread(append_line, self._cache, json.dumps(found))
            self._known |= found
        return np.array([[self._known[_key(each)] for each in pair.examples] for pair in pairs]).reshape(-1, 2)


def _finite(example: Example, total: float) -> float:
    if not math.isfinite(total):
        raise ServiceError(
            f"the reference gave no logprob for some token of {example.source}; see that reference_model can give "
            "logprobs of a prompt"
        )
    return total


def _key(example: Example) -> str:
    """A digest of what the sum depends on, besides the reference."""
    content = example.tokens_T.tobytes() + b"/" + example.weights_T.tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _read(cache: Path) -> dict[str, float]:
    known: dict[str, float] = {}
    for number, line in enumerate(whole_lines(cache), start=1):
        try:
            known |= {str(key): float(value) for key, value in json.loads(line).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{cache}, line {number}, holds no logprobs of a reference ({error}); remove the file, and they are "
                "computed again"
            ) from error
    return known


_STATE = "/weights/"
"""In the path of weights that can be trained on, unlike those saved to sample from."""


class ReferencedSettings(Protocol):
    """Settings that name the weights of the reference: those of a run that begins with these."""

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


@dataclass(frozen=True, kw_only=True)
class PairPayload:
    """Inputs of a loss over pairs besides the logprobs of the weights being trained."""

    reference_P2: NDArray[np.float64]
    """Σ w·logprob under the reference of each pair's answers: chosen, rejected."""


class PairAssembler:
    """The assembler of batches of pairs: interleaved datums, and the reference, which is asked while the batch before
    is trained on.
    """

    def __init__(self, reference: Reference, telemetry: Telemetry) -> None:
        self._reference = reference
        self._telemetry = telemetry

    async def __call__(self, pairs: Sequence[Pair]) -> Assembled[PairPayload]:
        """Two datums for each pair.

        Raises:
            InputError: the service refused an answer.
            ServiceError: the reference failed.
        """
        with self._telemetry.span("compute_reference_logprobs"):
            payload = PairPayload(reference_P2=await self._reference.logprobs(pairs))
        return Assembled(data_D=interleaved(pairs), payload=payload, labels=("chosen", "rejected"))
