"""Who answers a benchmark: weights that a client samples from, or a completer of messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import tinker

from cookhouse.chat import Message, Renderer, Termination, text_of
from cookhouse.errors import CookhouseError, InputError
from cookhouse.rl import MessageCompleter
from cookhouse.sampling_client import SampleClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How answers are sampled."""

    num_samples: int = 1
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """One answer of a model, or why there is none."""

    text: str = ""
    is_cut: bool = False
    """Whether it did not end by itself, or is not well formed."""
    error: str | None = None
    """Why there is none."""


class Answerer(Protocol):
    """Answers what it is asked."""

    async def __call__(self, messages: Sequence[Message], draw: Draw) -> Sequence[SampledAnswer]:
        """`draw.num_samples` answers, those that failed among them with their errors.

        Raises:
            InputError, ServiceError: nothing can be answered, this or anything else.
        """


class SamplingAnswerer:
    """Samples from the weights that a client holds, in the chat format of a renderer.

    With `context_tokens`, what the model takes at most, an answer gets what its prompt leaves.
    """

    def __init__(self, client: SampleClient, renderer: Renderer, *, context_tokens: int | None = None) -> None:
        self._client = client
        self._renderer = renderer
        self._context_tokens = context_tokens

    async def __call__(self, messages: Sequence[Message], draw: Draw) -> Sequence[SampledAnswer]:
        try:
            prompt = self._renderer.build_generation_prompt(messages)
        except InputError as error:
            return failed(str(error), draw)
        room = draw.max_tokens
        if self._context_tokens is not None:
            room = min(room, self._context_tokens - prompt.length)
        if room < 1:
            return failed(f"the prompt has {prompt.length:,} tokens; the model takes {self._context_tokens:,}", draw)
        params = tinker.SamplingParams(
            max_tokens=room, temperature=draw.temperature, seed=draw.seed, stop=self._renderer.get_stop_sequences()
        )
        response = await self._client.sample(prompt, draw.num_samples, params)
        answers = [self._read(sequence.tokens) for sequence in response.sequences[: draw.num_samples]]
        missing = draw.num_samples - len(answers)
        return [*answers, *[SampledAnswer(error="the service gave fewer answers than it was asked for")] * missing]

    def _read(self, tokens: Sequence[int]) -> SampledAnswer:
        message, termination = self._renderer.parse_response(tokens)
        return SampledAnswer(text=text_of(message), is_cut=termination is Termination.MALFORMED)


class CompleterAnswerer:
    """Asks a completer, which samples as it was opened to, once for each answer; what it raises is why one failed."""

    def __init__(self, completer: MessageCompleter) -> None:
        self._completer = completer

    async def __call__(self, messages: Sequence[Message], draw: Draw) -> Sequence[SampledAnswer]:
        return [await self._ask(messages) for _ in range(draw.num_samples)]

    async def _ask(self, messages: Sequence[Message]) -> SampledAnswer:
        try:
            return SampledAnswer(text=text_of(await self._completer(messages)))
        except CookhouseError:
            raise
        except Exception as error:  # of the user's own code
            return SampledAnswer(error=f"{type(error).__name__}: {error}")


def failed(reason: str, draw: Draw) -> list[SampledAnswer]:
    """No answers, for a reason."""
    return [SampledAnswer(error=reason)] * draw.num_samples
