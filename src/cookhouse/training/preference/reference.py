"""Logprobs of answers under the reference: asked of the service, at most once for each answer.

Legend: T tokens of a sequence, P pairs.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tinker
from numpy.typing import NDArray

from cookhouse.data import Example, shifted_datum
from cookhouse.errors import InputError, ServiceError
from cookhouse.training.clients.client import TrainingClient
from cookhouse.training.clients.session import service_errors
from cookhouse.training.files import append_line, whole_lines
from cookhouse.training.preference.dataset import Pair
from cookhouse.training.rollouts.assembler import ComputeLogprobs

AnswerLogprobs = Callable[[Sequence[Example]], Awaitable[Sequence[NDArray[Any]]]]
"""Logprobs of several sequences: of each token but the first, given those before it; NaN where there is none."""


def logprobs_by_forward(client: TrainingClient) -> AnswerLogprobs:
    """One `forward` for all: what a training client of the same weights computes, to the bit where it computes the same
    sequences together.
    """

    async def ask(examples: Sequence[Example]) -> Sequence[NDArray[Any]]:
        data_D = [shifted_datum(each.tokens_T, each.weights_T, "none") for each in examples]
        output = await client.forward(data_D, "cross_entropy")
        return [fields["logprobs"].to_numpy() for fields in output.loss_fn_outputs]

    return ask


def logprobs_by_sampler(compute: ComputeLogprobs) -> AnswerLogprobs:
    """A request for each sequence, for weights that can only be sampled from."""

    async def one(example: Example) -> NDArray[Any]:
        logprobs = await compute(tinker.ModelInput.from_ints(example.tokens_T.tolist()))
        return np.array(logprobs[1:], dtype=np.float64)

    async def ask(examples: Sequence[Example]) -> Sequence[NDArray[Any]]:
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(one(each)) for each in examples]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in asking]

    return ask


class Reference(Protocol):
    """What answers are compared with."""

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

    def __init__(self, ask: AnswerLogprobs, cache: Path | None = None) -> None:
        self._ask = ask
        self._cache = cache
        self._known: dict[str, float] = {} if cache is None else _read(cache)

    async def logprobs(self, pairs: Sequence[Pair]) -> NDArray[np.float64]:
        """Asks for what is not known yet, all at once.

        Raises:
            InputError: the service refused an answer, or the file cannot be written.
            ServiceError: it failed, or gave no logprobs.
        """
        by_key = {_key(each): each for pair in pairs for each in pair.examples}
        missing = {key: each for key, each in by_key.items() if key not in self._known}
        if missing:
            with service_errors("computing logprobs of the reference"):
                logprobs = await self._ask([*missing.values()])
            sums = [_sum(*each) for each in zip(missing.values(), logprobs, strict=True)]
            found = dict(zip(missing, sums, strict=True))
            if self._cache is not None:
                await asyncio.to_thread(append_line, self._cache, json.dumps(found))
            self._known |= found
        return np.array([[self._known[_key(each)] for each in pair.examples] for pair in pairs])


def _sum(example: Example, logprobs_T: NDArray[Any]) -> float:
    """Σ w·logprob over the targets: every token but the first, which nothing precedes."""
    # Where no weight is, a logprob may be of anything, also minus infinity.
    weights_T = example.weights_T[1:].astype(np.float64)
    is_trained_T = weights_T != 0
    if logprobs_T.shape != is_trained_T.shape or not np.isfinite(logprobs_T[is_trained_T]).all():
        raise ServiceError(
            f"the reference gave no logprob for some token of {example.source}; see that reference_model can give "
            "logprobs of a prompt"
        )
    return float(np.sum(weights_T[is_trained_T] * logprobs_T[is_trained_T].astype(np.float64)))


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
