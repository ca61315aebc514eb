"""Another model that takes part in rollouts: named before there is a session, and sampled from once there is one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import tinker

from cookhouse.registry import ModelRegistry
from cookhouse.training import SamplingClient, ServiceClient, service_errors
from cookhouse.weights.names import find_weights


class SecondModel:
    """Fits `cookhouse.training.SamplingClient`; the client behind it is made by the session, when that opens."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._client: asyncio.Future[SamplingClient] = asyncio.get_running_loop().create_future()

    async def open(self, service: ServiceClient, registry: ModelRegistry | None) -> None:
        """Make the client.

        Raises:
            InputError: the service refused the model.
            ServiceError: it failed.
        """
        self._client.set_result(await open_sampler(service, self._name, registry))

    async def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        """As the client's own, once it is there."""
        return await (await self._client).sample(prompt, num_samples, sampling_params)

    async def compute_logprobs(self, prompt: tinker.ModelInput) -> list[float | None]:
        """As the client's own, once it is there."""
        return await (await self._client).compute_logprobs(prompt)


async def open_sampler(service: ServiceClient, name: str, registry: ModelRegistry | None) -> SamplingClient:
    """A sampling client of a base model, or of weights that a run saved. Raises as `SecondModel.open`."""
    return await sampler_at(service, sampler_place(name, registry))


def sampler_place(name: str, registry: ModelRegistry | None) -> Mapping[str, str]:
    """A `model_path` or a `base_model`, for what a name means now.

    Raises:
        InputError: it names weights that are not there.
    """
    return find_weights(name, registry).place("sampling")


async def sampler_at(service: ServiceClient, place: Mapping[str, str], *, in_thread: bool = False) -> SamplingClient:
    """A sampling client of a `model_path` or of a `base_model`; the request is made in a thread of its own where the
    service may block. Raises as `SecondModel.open`.
    """
    with service_errors(f"opening a sampler of {' '.join(place.values())}"):
        create: Callable[..., Awaitable[SamplingClient]] = service.create_sampling_client
        return await (await asyncio.to_thread(create, **place) if in_thread else create(**place))
