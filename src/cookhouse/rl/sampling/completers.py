"""Completers: a prompt in, what the model says out; for opponents, judges, answerers and trying things out."""

from collections.abc import Sequence
from typing import Protocol

import tinker

from cookhouse.chat import Message, Renderer
from cookhouse.rl.sampling.sampler import StopCondition, TokensWithLogprobs
from cookhouse.sampling_client import SampleClient, sample_one


class TokenCompleter(Protocol):
    """Tokens in, tokens out."""

    async def __call__(self, prompt: tinker.ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        """One continuation, the stop token included."""


class MessageCompleter(Protocol):
    """Messages in, message out."""

    async def __call__(self, messages: Sequence[Message]) -> Message:
        """The assistant's next message, its tool calls included."""


class ClientTokenCompleter:
    """Samples from the weights that a client holds.

    With a `seed` the same prompt gets the same answer every time; without one, the service draws a new one.
    """

    def __init__(
        self, client: SampleClient, *, max_tokens: int, temperature: float = 1.0, seed: int | None = None
    ) -> None:
        self._client = client
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._seed = seed

    async def __call__(self, prompt: tinker.ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        """One continuation. Raises `ServiceError` if the service gave another number of them."""
        params = tinker.SamplingParams(
            max_tokens=self._max_tokens, temperature=self._temperature, seed=self._seed, stop=stop
        )
        sequence = await sample_one(self._client, prompt, params)
        return TokensWithLogprobs(tokens=sequence.tokens, maybe_logprobs=sequence.logprobs)


class RenderedMessageCompleter:
    """Renders messages for a token completer, and reads the message in what comes back.

    A response that was cut off is read as far as it goes; a tool call that nobody can read stays in
    `unparsed_tool_calls`.
    """

    def __init__(self, completer: TokenCompleter, renderer: Renderer) -> None:
        self._completer = completer
        self._renderer = renderer

    async def __call__(self, messages: Sequence[Message]) -> Message:
        """The assistant's next message. Raises `InputError` if the family cannot write the messages."""
        prompt = self._renderer.build_generation_prompt(messages)
        response = await self._completer(prompt, self._renderer.get_stop_sequences())
        message, _ = self._renderer.parse_response(response.tokens)
        return message
