"""Answerers of a benchmark: weights that a client samples from, or a completer of messages."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import tinker

from cookhouse.chat import Message, Renderer, Termination, text_of
from cookhouse.errors import CookhouseError, InputError, ServiceError
from cookhouse.evals.benchmarks.attempts import SampledAnswer
from cookhouse.rl import MessageCompleter
from cookhouse.sampling_client import SamplingClient


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSampling:
    """Sampling parameters of answers, or the choices of which the likeliest is taken."""

    num_samples: int = 1
    max_tokens: int
    temperature: float
    seed: int
    choices: Sequence[str] = ()


class Answerer(Protocol):
    """Answers what it is asked."""

    async def __call__(self, messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        """`draw.num_samples` answers, those that failed among them with their errors.

        Raises:
            InputError, ServiceError: nothing can be answered, this or anything else.
        """


class SamplingAnswerer:
    """Samples from the weights that a client holds, in the chat format of a renderer. Of choices it takes the
    likeliest, each with what ends an answer in that format.

    With `context_tokens`, what the model takes at most, an answer gets what its prompt leaves.
    """

    def __init__(self, client: SamplingClient, renderer: Renderer, *, context_tokens: int | None = None) -> None:
        self.client = client
        self.renderer = renderer
        self.context_tokens = context_tokens

    async def __call__(self, messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        if draw.choices:
            return [await self._choose(messages, draw.choices)] * draw.num_samples
        try:
            prompt = self.renderer.build_generation_prompt(messages)
        except InputError as error:
            return failed(str(error), draw)
        room = draw.max_tokens
        if self.context_tokens is not None:
            room = min(room, self.context_tokens - prompt.length)
        if room < 1:
            return failed(f"the prompt has {prompt.length:,} tokens; the model takes {self.context_tokens:,}", draw)
        params = tinker.SamplingParams(
            max_tokens=room, temperature=draw.temperature, seed=draw.seed, stop=self.renderer.get_stop_sequences()
        )
        response = await self.client.sample(prompt, draw.num_samples, params)
        answers = [self._read(sequence.tokens) for sequence in response.sequences[: draw.num_samples]]
        missing = draw.num_samples - len(answers)
        return [*answers, *[SampledAnswer(error="the service gave fewer answers than it was asked for")] * missing]

    async def _choose(self, messages: Sequence[Message], choices: Sequence[str]) -> SampledAnswer:
        try:
            prompt = self.renderer.build_generation_prompt(messages)
            endings = [
                self.renderer.build_response([*messages, {"role": "assistant", "content": choice}])
                for choice in choices
            ]
        except InputError as error:
            return SampledAnswer(error=str(error))
        longest = prompt.length + max(map(len, endings))
        # A service samples one token after the text that it scores.
        if self.context_tokens is not None and longest >= self.context_tokens:
            reason = f"with its longest choice it has {longest:,} tokens; the model takes {self.context_tokens:,}"
            return SampledAnswer(error=reason)
        found = await asyncio.gather(*(self._logprob(prompt, ending) for ending in endings))
        logprobs = dict(zip(choices, found, strict=True))
        return SampledAnswer(text=max(logprobs, key=logprobs.__getitem__), logprobs=logprobs)

    async def _logprob(self, prompt: tinker.ModelInput, ending: Sequence[int]) -> float:
        whole = tinker.ModelInput(chunks=[*prompt.chunks, tinker.EncodedTextChunk(tokens=ending)])
        scored = (await self.client.compute_logprobs(whole))[-len(ending) :]
        known = [value for value in scored if value is not None]
        if len(known) != len(ending):
            raise ServiceError(f"the service gave {len(known)} logprobs of a choice of {len(ending)} tokens")
        return math.fsum(known)

    def _read(self, tokens: Sequence[int]) -> SampledAnswer:
        message, termination = self.renderer.parse_response(tokens)
        return SampledAnswer(text=text_of(message), is_cut=termination is Termination.MALFORMED)


class CompleterAnswerer:
    """Asks a completer, which samples as it was opened to, once for each answer; what it raises is why one failed."""

    def __init__(self, completer: MessageCompleter) -> None:
        self.completer = completer

    async def __call__(self, messages: Sequence[Message], draw: AnswerSampling) -> Sequence[SampledAnswer]:
        refuse_choices(draw, "a completer")
        return [await self._ask(messages) for _ in range(draw.num_samples)]

    async def _ask(self, messages: Sequence[Message]) -> SampledAnswer:
        try:
            return SampledAnswer(text=text_of(await self.completer(messages)))
        except CookhouseError:
            raise
        except Exception as error:  # of the user's own code
            return SampledAnswer(error=f"{type(error).__name__}: {error}")


def refuse_choices(draw: AnswerSampling, who: str) -> None:
    """Raise `InputError` if choices would have to be scored by what gives texts alone."""
    if draw.choices:
        raise InputError(f"{who} gives texts, and a benchmark of choices needs their logprobs; evaluate weights")


def failed(reason: str, draw: AnswerSampling) -> list[SampledAnswer]:
    """No answers, for a reason."""
    return [SampledAnswer(error=reason)] * draw.num_samples
