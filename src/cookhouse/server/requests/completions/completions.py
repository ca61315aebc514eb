"""Answers to what OpenAI's clients ask for: rendered, sampled, and cut off when nobody waits for them."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cookhouse.chat import Encoder, Message, Renderer, get_renderer, supported_renderers
from cookhouse.chat.template import TemplateRenderer
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai import ChatAnswer, ChatRequest, Completion, CompletionRequest
from cookhouse.dialects.openai.fields import check_length, check_letters
from cookhouse.dialects.texts import TokenTexts
from cookhouse.engine.contract import SampleRequest
from cookhouse.errors import InputError
from cookhouse.models.catalog import TEMPLATE, default_renderer, renderers_of_family
from cookhouse.models.tokenizers import get_tokenizer
from cookhouse.server.requests.completions.sampling import Sampling
from cookhouse.server.requests.completions.weights import NamedWeights, WeightNames
from cookhouse.server.requests.fair_lock import FairLock
from cookhouse.server.sequencer.sample_queue import SampleQueue

_SETTING = "enable_thinking"
"""What chat templates call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Of one tokenizer."""

    encoder: Encoder
    tokens: TokenTexts


class ChatFormats:
    """Blocking, and called from one thread: tokenizers are not safe in several."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {}
        self._renderers: dict[tuple[str, str, str | None, bool | None], Renderer] = {}
        """By tokenizer, base model, the renderer that the weights name, and whether it is to think: which these mean
        takes milliseconds.
        """

    def texts(self, weights: NamedWeights) -> Texts:
        """Raises InputError where the base model has no tokenizer that can be used."""
        tokenizer_id = weights.info.tokenizer_id
        if tokenizer_id not in self._texts:
            encoder = Encoder(get_tokenizer(tokenizer_id))
            self._texts[tokenizer_id] = Texts(encoder=encoder, tokens=TokenTexts(encoder))
        return self._texts[tokenizer_id]

    def renderer(self, weights: NamedWeights, *, thinks: bool | None = None) -> Renderer:
        """The renderer that the weights were trained with, else the one of their base model; where that does not think
        as `thinks` says, the one of its family that does.

        Raises:
            InputError: this server does not have it, or it does not go with the tokenizer, or none thinks so.
        """
        key = weights.info.tokenizer_id, weights.base_model, weights.renderer_name, thinks
        if key not in self._renderers:
            name = _renderer_name(weights)
            self._renderers[key] = (
                get_renderer(name, get_tokenizer(weights.info.tokenizer_id))
                if thinks is None
                else _renderer_that(weights, name, thinks=thinks)
            )
        return self._renderers[key]


def _renderer_name(weights: NamedWeights) -> str:
    tokenizer_id = weights.info.tokenizer_id
    name = weights.renderer_name or default_renderer(weights.base_model, files=tokenizer_id)
    # A tenant wrote it: one of a file or a module would be a tenant's code.
    if name not in supported_renderers():
        raise InputError(
            f"{weights.name} was trained with renderer {name!r}, which this server does not have; render the "
            "conversation yourself, and send it to /v1/completions as tokens"
        )
    return name


def _renderer_that(weights: NamedWeights, own: str, *, thinks: bool) -> Renderer:
    """The weights' own renderer, or another of its family, that thinks or not."""
    tokenizer_id = weights.info.tokenizer_id
    tokenizer = get_tokenizer(tokenizer_id)
    if own == TEMPLATE and _SETTING in str(tokenizer.chat_template):
        return TemplateRenderer(tokenizer, **{_SETTING: thinks})
    for name in renderers_of_family(weights.base_model, own, files=tokenizer_id):
        renderer = get_renderer(name, tokenizer)
        if renderer.thinks == thinks:
            return renderer
    always = "never thinks" if thinks else "always thinks"
    raise FieldError(
        f"chat_template_kwargs.{_SETTING}",
        f"{weights.name} {always} in the format of its renderer, {own}; leave {_SETTING} out",
    )


_T = TypeVar("_T")


class Answers:
    """Lives on the event loop; what reads and writes text is done in a thread of its own."""

    def __init__(self, weights: WeightNames, samples: SampleQueue) -> None:
        self.weights = weights
        self._samples = samples
        self._formats = ChatFormats()
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="texts")
        self._text_lock = FairLock()
        self._live: set[Sampling] = set()

    async def chat(self, owner: str, request: ChatRequest) -> tuple[ChatAnswer, Sampling]:
        """Begin an answer to a conversation; who takes it closes the sampling.

        Raises:
            InputError: something that it asks for cannot be done.
        """
        request.check()
        weights = await self.weights.find(request.model, owner)
        context = weights.info.max_context_tokens

        def prepare() -> tuple[ChatAnswer, SampleRequest]:
            renderer, texts = self._formats.renderer(weights, thinks=request.thinks), self._formats.texts(weights)
            messages = request.conversation()
            check_letters(context, sum(map(_num_letters, messages)), prompt="messages")
            try:
                prompt = renderer.build_generation_prompt(messages)
            except InputError as error:
                raise FieldError("messages", str(error)) from error
            tokens = prompt.to_ints()
            check_length(context, len(tokens), request.limit, prompt="messages", limit=request.limit_field)
            answer = ChatAnswer(
                request,
                model=weights.name,
                prompt=tokens,
                streams=[renderer.stream_response(prompt) for _ in range(request.num_samples)],
                texts=texts.tokens,
            )
            sample = _sample_request(
                owner,
                weights,
                tokens,
                **request.sampling(),
                max_tokens=request.limit,
                stop=[*renderer.get_stop_sequences(), *request.stops],
                topk_sample_logprobs=request.top_logprobs or 0,
            )
            return answer, sample

        answer, sample = await self.in_text_thread(owner, prepare)
        return answer, self._start(owner, weights, [sample])

    async def completion(self, owner: str, request: CompletionRequest) -> tuple[Completion, Sampling]:
        """Begin the completions of some prompts. As `chat`."""
        request.check()
        weights = await self.weights.find(request.model, owner)
        context = weights.info.max_context_tokens

        def prepare() -> tuple[Completion, list[SampleRequest]]:
            texts = self._formats.texts(weights)
            for prompt in request.prompts:
                check_letters(context, len(prompt) if isinstance(prompt, str) else 0, prompt="prompt")
            prompts = [_encode(prompt, texts.encoder) for prompt in request.prompts]
            samples = []
            for tokens in prompts:
                check_length(context, len(tokens), request.limit, prompt="prompt", limit="max_tokens")
                samples.append(
                    _sample_request(
                        owner,
                        weights,
                        tokens,
                        **request.sampling(),
                        max_tokens=max(request.limit, 1),
                        stop=request.stops or None,
                        topk_sample_logprobs=request.logprobs or 0,
                        prompt_logprobs=request.scores_prompt,
                        topk_prompt_logprobs=(request.logprobs or 0) if request.scores_prompt else 0,
                    )
                )
            completion = Completion(
                request, model=weights.name, prompts=prompts, encoder=texts.encoder, texts=texts.tokens
            )
            return completion, samples

        completion, samples = await self.in_text_thread(owner, prepare)
        return completion, self._start(owner, weights, samples)

    async def in_text_thread(self, owner: str, call: Callable[[], _T]) -> _T:
        """Do what takes long with texts, one after another, the tenants in rotation."""
        async with self._text_lock.hold(owner):
            return await asyncio.get_running_loop().run_in_executor(self._text_thread, call)

    def end(self, sampling: Sampling) -> None:
        """Have the engine drop what of an answer is not sampled yet: it is over, or nobody waits for it."""
        self._live.discard(sampling)
        sampling.close()

    def dismiss(self) -> None:
        """Fail every answer under way: the process is about to end."""
        for sampling in self._live:
            sampling.dismiss()

    def shut_down(self) -> None:
        self._text_thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, owner: str, weights: NamedWeights, requests: Sequence[SampleRequest]) -> Sampling:
        sampling = Sampling([request.request_id for request in requests], self._cancel)
        self._live.add(sampling)
        try:
            for request in requests:
                self._samples.stream(request, weights.snapshot, sampling.emit, owner=owner)
        except InputError:
            self.end(sampling)
            raise
        return sampling

    def _cancel(self, request_ids: Sequence[str]) -> None:
        self._samples.cancel(request_ids, InputError("the client has disconnected"))


def _sample_request(owner: str, weights: NamedWeights, tokens: Sequence[int], **fields: Any) -> SampleRequest:
    return SampleRequest(
        request_id=f"answer-{secrets.token_hex(12)}",
        base_model=weights.info.name,
        snapshot_id=None if weights.snapshot is None else weights.snapshot.snapshot_id,
        prompt_T=np.array(tokens, dtype=np.int64),
        owner=owner,
        **fields,
    )


def _num_letters(message: Message) -> int:
    content = message["content"]
    if isinstance(content, str):
        return len(content)
    return sum(len(value) for part in content for value in part.values() if isinstance(value, str))


def _encode(prompt: str | list[int], encoder: Encoder) -> list[int]:
    """A prompt in tokens: text as its tokenizer writes it, with what that puts before a text."""
    if not isinstance(prompt, str):
        return prompt
    tokens = list(encoder.tokenizer.encode(prompt, add_special_tokens=True))
    bos = encoder.tokenizer.bos_token_id
    return tokens or ([] if bos is None else [bos])
