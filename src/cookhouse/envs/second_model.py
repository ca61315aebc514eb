"""Environments in which another model takes part."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import chz

from cookhouse.chat import Renderer
from cookhouse.data import build_renderer
from cookhouse.errors import InputError
from cookhouse.models.catalog import renderer_without_thinking
from cookhouse.rl import ClientTokenCompleter, MessageCompleter, RLDataset
from cookhouse.sampling_client import SamplingClient
from cookhouse.weights.names import Origin, find_weights

_THINKING_TOKENS = 2048
"""Room for what a model thinks before it answers, where it cannot be switched off."""

OpenSampler: TypeAlias = Callable[[str], Awaitable[SamplingClient]]
"""A client that samples from a base model, or from weights that a run saved, by name; it answers once the session is
open."""


OriginOf: TypeAlias = Callable[[str], Origin]
"""On what the weights of a name were trained."""


class SecondModels:
    """The other models of a run; fits `OpenSampler`. With `open_completer` they are not sampled from, but asked."""

    def __init__(
        self,
        open_sampler: OpenSampler,
        open_completer: Callable[[str], MessageCompleter] | None = None,
        origin_of: OriginOf | None = None,
    ) -> None:
        self._open_sampler = open_sampler
        self.open_completer = open_completer
        self.origin_of = origin_of or _origin_of_files

    async def __call__(self, name: str) -> SamplingClient:
        """A client that samples from the model of that name."""
        return await self._open_sampler(name)


def _origin_of_files(name: str) -> Origin:
    return find_weights(name).origin(())


@dataclass(frozen=True, kw_only=True)
class SecondModelSpec:
    """Another model in an environment, and how it is asked."""

    model_name: str
    """A name of weights, as `find_weights` takes it."""
    trained_model: str
    """The base model of weights of which no file here says on what they were trained."""
    renderer_name: str | None = None
    """None: the one that its weights were trained in, else the model's own, with thinking off where its family has a
    way.
    """
    force_renderer: bool = False
    max_tokens: int | None = None
    """Of what it says; None: `answer_tokens`, and room to think where it does."""
    answer_tokens: int
    """What its answers take."""
    temperature: float = 1.0

    async def open(self, open_sampler: OpenSampler) -> tuple[ClientTokenCompleter, Renderer]:
        """Open a client that samples from it, with its chat format.

        Raises:
            InputError: the renderer is unknown or does not fit the model, or `max_tokens` is below 1.
        """
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"max_tokens of {self.model_name} is {self.max_tokens}; it must be at least 1")
        origin_of = open_sampler.origin_of if isinstance(open_sampler, SecondModels) else _origin_of_files
        origin = await asyncio.to_thread(origin_of, self.model_name)
        base = origin.base_model or self.trained_model
        name = self.renderer_name or origin.renderer_name or renderer_without_thinking(base)
        renderer = build_renderer(base, name, force=self.force_renderer)
        room = _THINKING_TOKENS if renderer.thinks else 0
        max_tokens = self.answer_tokens + room if self.max_tokens is None else self.max_tokens
        client = await open_sampler(self.model_name)
        return ClientTokenCompleter(client, max_tokens=max_tokens, temperature=self.temperature), renderer

    def completer_of(self, open_sampler: OpenSampler) -> MessageCompleter | None:
        """Completer in the model's place, if the run's adapters have one."""
        return completer_of(self.model_name, open_sampler)


def completer_of(model_name: str, open_sampler: OpenSampler) -> MessageCompleter | None:
    """Completer in place of the model of that name, if the run's adapters have one."""
    if not isinstance(open_sampler, SecondModels) or open_sampler.open_completer is None:
        return None
    return open_sampler.open_completer(model_name)


class TwoModelConfig(Protocol):
    """A config of environments that may need a second model."""

    async def build(self, open_sampler: OpenSampler | None) -> tuple[RLDataset, RLDataset | None]:
        """Data sets to train and to evaluate on."""


@dataclass(frozen=True, kw_only=True)
class TwoModelBuilder:
    """A config and the service that the other model is sampled from; fits `cookhouse.rl.RLDatasetBuilder`."""

    config: TwoModelConfig
    open_sampler: OpenSampler

    async def build(self) -> tuple[RLDataset, RLDataset | None]:
        """As the config's own."""
        return await self.config.build(self.open_sampler)

    def with_batch_size(self, batch_size: int) -> "TwoModelBuilder":
        """The same, with so many groups in a batch."""
        config: Any = self.config
        return replace(self, config=chz.replace(config, batch_size=batch_size))
