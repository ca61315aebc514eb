"""A model that answers: weights to sample from, with the chat format and the way of drawing."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cookhouse.errors import InputError

if TYPE_CHECKING:
    from tinker import ModelInput
    from tinker.types import SampledSequence

    from cookhouse.chat import Delta, Message, Renderer
    from cookhouse.sampling_client import SampleClient
    from cookhouse.service.sampling.target import Target
    from cookhouse.training import ServiceClient

_FIRST_TOKENS = 4
_MAX_TOKENS_AT_ONCE = 64
_SLOW_SECONDS, _QUICK_SECONDS = 0.6, 0.25
"""Of one request while an answer is streamed: each next one asks for half or twice as many tokens."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Sampling parameters of answers."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    """None: a fresh one for each answer."""


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """Answer of a model."""

    message: "Message"
    text: str
    note: str | None
    """What a person should know of how it ended, if it did not end by itself."""
    is_full: bool = False
    """Whether it is cut because it has as many tokens as the draw allows."""


@dataclass(frozen=True, kw_only=True)
class ChatModel:
    """Answers conversations."""

    name: str
    """Of its weights or its model, as it was asked for."""
    client: "SampleClient"
    renderer: "Renderer"
    draw: SamplingOptions
    context_tokens: int | None
    """Prompt and answer together; None if nobody knows."""
    is_streamed: bool
    """Whether an answer is asked for in pieces: the protocol has no streams, and a service that keeps prefixes loses
    little by it. One that bills each prompt is asked once.
    """

    @classmethod
    async def open(
        cls, service: "ServiceClient", target: "Target", draw: SamplingOptions, *, is_streamed: bool
    ) -> "ChatModel":
        """Open a target on a service that has it. Raises what the SDK raises, and `InputError`."""
        import asyncio

        from cookhouse.chat import get_renderer
        from cookhouse.models.catalog import default_renderer
        from cookhouse.models.tokenizers import get_tokenizer

        if target.sampler_path is not None:
            client: Any = await service.create_sampling_client(model_path=target.sampler_path)
        else:
            client = await service.create_sampling_client(base_model=target.model_name)
        model = target.model_name or str(await asyncio.to_thread(client.get_base_model))
        renderer = await asyncio.to_thread(
            lambda: get_renderer(target.renderer_name or default_renderer(model), get_tokenizer(model))
        )
        return cls(
            name=target.label,
            client=client,
            renderer=renderer,
            draw=draw,
            context_tokens=await service.context_tokens(model),
            is_streamed=is_streamed,
        )

    async def answer(
        self, messages: "Sequence[Message]", show: "Callable[[Delta], None] | None" = None, *, attempt: int = 0
    ) -> ChatAnswer:
        """The next message of a conversation; `show` is given what is certain of it as it comes.

        `attempt` counts the draws of the same answer, from 0.

        Raises:
            InputError: the conversation leaves no room for an answer.
        """
        prompt = self.renderer.build_generation_prompt(messages)
        seed = secrets.randbits(31) if self.draw.seed is None else self.draw.seed + attempt
        stream = self.renderer.stream_response(prompt)
        stops = self.renderer.get_stop_sequences()
        tokens: list[int] = []
        async for sequence in self.sampled(prompt, stops, seed=seed, is_shown=show is not None):
            tokens += sequence.tokens
            if show is not None:
                for delta in stream.feed(sequence.tokens):
                    show(delta)
        if show is not None:
            for delta in stream.finish():
                show(delta)
        return self.read(prompt, tokens)

    def read(self, prompt: "ModelInput", tokens: "Sequence[int]") -> ChatAnswer:
        """Parse tokens sampled after a prompt, in the chat format."""
        from cookhouse.chat import Termination, text_of

        message, termination = self.renderer.parse_response(tokens)
        is_cut = termination is Termination.MALFORMED
        return ChatAnswer(
            message=message,
            text=text_of(message),
            note=self._note(len(tokens), self._room(prompt.length)) if is_cut else None,
            is_full=is_cut and len(tokens) >= self.draw.max_tokens,
        )

    async def sampled(
        self, prompt: "ModelInput", stops: "list[str] | list[int]", *, seed: int, is_shown: bool = True
    ) -> "AsyncIterator[SampledSequence]":
        """Sample after a prompt, in pieces where somebody is shown them as they come and the service loses little by
        it.

        Raises:
            InputError: the prompt leaves no room for an answer.
        """
        import tinker

        from cookhouse.sampling_client import sample_one

        limit = self._room(prompt.length)
        # A stop that is text may lie across two requests, in neither of which the service would see it.
        is_in_pieces = self.is_streamed and is_shown and not any(isinstance(stop, str) for stop in stops)
        at_once = _FIRST_TOKENS if is_in_pieces else limit
        tokens: list[int] = []
        while len(tokens) < limit:
            parameters = tinker.SamplingParams(
                max_tokens=min(at_once, limit - len(tokens)),
                temperature=self.draw.temperature,
                top_p=self.draw.top_p,
                seed=seed,
                stop=stops,
            )
            said = [tinker.EncodedTextChunk(tokens=list(tokens))] if tokens else []
            so_far = tinker.ModelInput(chunks=[*prompt.chunks, *said])
            asked_at = time.monotonic()
            sequence = await sample_one(self.client, so_far, parameters)
            at_once = _next_size(at_once, time.monotonic() - asked_at)
            tokens += sequence.tokens
            yield sequence
            if sequence.stop_reason == "stop" or not sequence.tokens:
                return

    def _room(self, num_prompt_tokens: int) -> int:
        """Tokens that an answer may have."""
        if self.context_tokens is None:
            return self.draw.max_tokens
        room = self.context_tokens - num_prompt_tokens
        if room < 1:
            raise InputError(
                f"the conversation has {num_prompt_tokens:,} tokens, and {self.name} takes {self.context_tokens:,}, "
                "its answer included; ask less, or start over"
            )
        return min(room, self.draw.max_tokens)

    def _note(self, num_tokens: int, limit: int) -> str:
        if num_tokens < limit:
            return "the answer is not well formed"
        if limit < self.draw.max_tokens:
            return f"the answer is cut at {num_tokens:,} tokens: the context of {self.context_tokens:,} tokens is full"
        return f"the answer is cut at {num_tokens:,} tokens"


def _next_size(tokens: int, seconds: float) -> int:
    if seconds > _SLOW_SECONDS:
        return max(1, tokens // 2)
    return min(_MAX_TOKENS_AT_ONCE, tokens * 2) if seconds < _QUICK_SECONDS else tokens
