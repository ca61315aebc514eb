"""Weights by name as a model of Inspect AI: `inspect eval task.py --model cookhouse/WEIGHTS`."""

import asyncio
from typing import Any

import tinker
from inspect_ai.model import GenerateConfig

from cookhouse.errors import InputError
from cookhouse.evals.inspect.model import OpenWeights, SampledModel
from cookhouse.harnesses.background import BackgroundWeights


class CookhouseModel(SampledModel):
    """Opens the weights when it is first asked, on the configured service or on a local engine."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        registry: str | None = None,
        renderer: str | None = None,
        **others: Any,
    ) -> None:
        """The service and its key are those of TINKER_BASE_URL and TINKER_API_KEY.

        Raises:
            InputError: no weights have that name, or an argument is unknown.
        """
        if base_url is not None or api_key is not None:
            raise InputError("a model of cookhouse needs TINKER_BASE_URL and TINKER_API_KEY; set both")
        if others:
            raise InputError(
                f"a model of cookhouse takes no argument {sorted(others)[0]!r}; it takes registry and renderer"
            )
        super().__init__(model_name, config=config)
        self._background = BackgroundWeights(model_name, registry=registry, renderer=renderer)

    async def open(self) -> OpenWeights:
        return await asyncio.wrap_future(self._background.open())

    async def sample(
        self, asked: OpenWeights, prompt: tinker.ModelInput, params: tinker.SamplingParams, config: GenerateConfig
    ) -> tinker.SampleResponse:
        return await asyncio.wrap_future(self._background.submit(super().sample(asked, prompt, params, config)))

    async def aclose(self) -> None:
        """Stop the local engine, if one was started; the end of the program does so, too."""
        await asyncio.to_thread(self._background.close)
