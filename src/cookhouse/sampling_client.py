"""The part of `tinker.SamplingClient` that is used here, as protocols: the SDK's client and the fake one both fit."""

from collections.abc import Awaitable
from typing import Protocol

import tinker

from cookhouse.errors import ServiceError


class SampleClient(Protocol):
    """Samples from fixed weights: all that completers and evaluators need."""

    def sample(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> Awaitable[tinker.SampleResponse]: ...


async def sample_one(
    client: SampleClient, prompt: tinker.ModelInput, params: tinker.SamplingParams
) -> tinker.types.SampledSequence:
    """One continuation. Raises `ServiceError` if the service gave another number of them."""
    sequences = (await client.sample(prompt, 1, params)).sequences
    if len(sequences) != 1:
        raise ServiceError(f"the service was asked for 1 sample and gave {len(sequences)}")
    return sequences[0]


class SamplingClient(SampleClient, Protocol):
    """`tinker.SamplingClient`: fixed weights to sample from, which say how likely they find a text, too."""

    def compute_logprobs(self, prompt: tinker.ModelInput) -> Awaitable[list[float | None]]: ...


class TopKClient(Protocol):
    """The part of `tinker.SamplingClient` that says which tokens it finds most likely at each position of a prompt."""

    def sample(
        self,
        prompt: tinker.ModelInput,
        num_samples: int,
        sampling_params: tinker.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
    ) -> Awaitable[tinker.SampleResponse]: ...
