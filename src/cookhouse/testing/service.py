"""Parts that the suites of both clients of a training service share: an open session, and something to train on."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import tinker

from cookhouse.errors import CookhouseError, InputError
from cookhouse.testing.contract import Contract, require
from cookhouse.training import Connect, SamplingClient, ServiceClient, TrainingClient, service_errors

TOKENS = tuple(range(20, 36))
"""A text that is trained on."""
OTHER_TOKENS = tuple(range(60, 72))
LARGE_STEP, SMALL_STEP = 0.03, 0.002
"""Learning rates: after the one nobody can overlook a difference, with the other a loss goes down."""


class ServiceContract(Contract[Connect]):
    """`make` gives what opens a connection; every promise is kept over one of its own, which is then closed."""

    base_model: str = "cookhouse/tiny"
    """A base model that the service has."""
    rank: int = 8
    tolerance: float = 0.01
    """Nats per token by which the same weights may differ, say between training and sampling in bfloat16."""

    @abstractmethod
    def make(self) -> Connect: ...

    async def keep(self, promise: Callable[[ServiceClient], Awaitable[None]]) -> None:
        """Open a connection, see that a promise is kept over it, and close it."""
        service = await self.make()()
        try:
            with service_errors("keeping the contract"):
                await promise(service)
        finally:
            await service.close("success")

    async def trainer(self, service: ServiceClient, seed: int = 7) -> TrainingClient:
        """A fresh adapter. The SDK blocks while it opens its session."""
        create = partial(service.create_lora_training_client, self.base_model, rank=self.rank, seed=seed)
        return await (await asyncio.to_thread(create))

    async def sampler(self, service: ServiceClient) -> SamplingClient:
        """Of the base model."""
        return await (await asyncio.to_thread(partial(service.create_sampling_client, base_model=self.base_model)))

    def are_close(self, one: Sequence[float], other: Sequence[float]) -> bool:
        """Logprobs of the same text under the same weights."""
        return len(one) == len(other) and bool(np.allclose(one, other, rtol=0, atol=self.tolerance))


C = TypeVar("C", bound=ServiceContract)


def connected(promise: Callable[[C, ServiceClient], Awaitable[None]]) -> Callable[[C], None]:
    """A promise over an open connection as a test, which takes no arguments."""

    def test(self: C) -> None:
        asyncio.run(self.keep(partial(promise, self)))

    test.__doc__ = promise.__doc__
    return test


def datum(tokens: Sequence[int] = TOKENS, weight: float = 1.0) -> tinker.Datum:
    """Each token but the first to be predicted from those before it."""
    targets = np.array(tokens[1:], dtype=np.int64)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(targets),
            "weights": tinker.TensorData.from_numpy(np.full(targets.shape, weight, np.float32)),
        },
    )


def adam(learning_rate: float = LARGE_STEP) -> tinker.AdamParams:
    """As the loops set it."""
    return tinker.AdamParams(learning_rate=learning_rate, beta1=0.9, beta2=0.95, eps=1e-8)


async def step(client: TrainingClient, tokens: Sequence[int] = TOKENS, learning_rate: float = LARGE_STEP) -> None:
    """Train on a text once."""
    training = client.forward_backward([datum(tokens)], "cross_entropy")
    stepping = client.optim_step(adam(learning_rate))
    await training
    await stepping


async def logprobs(client: TrainingClient, tokens: Sequence[int] = TOKENS) -> list[float]:
    """Of each token but the first."""
    output = await client.forward([datum(tokens)], "cross_entropy")
    return logprobs_of(output)[0]


def logprobs_of(output: tinker.ForwardBackwardOutput) -> list[list[float]]:
    """Of the targets, by datum."""
    return [[float(value) for value in fields["logprobs"].to_numpy()] for fields in output.loss_fn_outputs]


async def refused(awaitable: Callable[[], Awaitable[object]], what: str) -> None:
    """See that something is refused as the caller's error."""
    try:
        with service_errors(what):
            await awaitable()
    except InputError:
        return
    except CookhouseError as error:
        require(False, f"{what} is the caller's error, not {type(error).__name__}: {error}")
    require(False, f"{what} is refused, and was not")
