"""Answers to what clients of other protocols ask for: rendered, sampled, and cut off when nobody waits for them."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from tinker import ModelInput

from cookhouse.chat import Encoder, Message, Renderer
from cookhouse.dialects.errors import FieldError
from cookhouse.dialects.openai import ChatRequest, Completion, CompletionRequest
from cookhouse.dialects.openai.fields import SamplingFields, check_length, check_letters
from cookhouse.dialects.vllm import DetokenizeRequest, GenerateRequest, Generation, TokenizeRequest
from cookhouse.engine.contract import SampleRequest
from cookhouse.errors import InputError
from cookhouse.server.requests.completions.formats import ChatFormats
from cookhouse.server.requests.completions.grammars import chat_grammar, form_grammar
from cookhouse.server.requests.completions.kept_responses import KeptResponses
from cookhouse.server.requests.completions.sampling import Sampling
from cookhouse.server.requests.completions.weights import NamedWeights, WeightNames
from cookhouse.server.requests.fair_lock import FairLock
from cookhouse.server.sequencer.sample_queue import SampleQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    tokens: Sequence[int]
    max_context_tokens: int
    strings: Sequence[str] | None
    """The text of each token, where it was asked for."""


_T = TypeVar("_T")
_Answer = TypeVar("_Answer")


class Answers:
    """Lives on the event loop; what reads and writes text is done in a thread of its own."""

    def __init__(self, weights: WeightNames, samples: SampleQueue) -> None:
        self.weights = weights
        self.responses = KeptResponses()
        self._samples = samples
        self._formats = ChatFormats()
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="texts")
        self._text_lock = FairLock()
        self._live: set[Sampling] = set()

    async def chat(self, owner: str, request: ChatRequest, form: Callable[..., _Answer]) -> tuple[_Answer, Sampling]:
        """Begin an answer to a conversation in the form of a dialect, which is made as `ChatAnswer` is; who takes it
        closes the sampling.

        Raises:
            InputError: something that it asks for cannot be done.
        """
        request.check()
        weights = await self.weights.find(request.model, owner)
        context = weights.info.max_context_tokens

        def prepare() -> tuple[_Answer, SampleRequest]:
            renderer, prompt = self._rendered(weights, request)
            texts = self._formats.texts(weights)
            tokens = prompt.to_ints()
            asked = request.limit if request.refuses_long_limit else None
            check_length(context, len(tokens), asked, prompt="messages", limit=request.limit_field)
            room = context - len(tokens)
            answer = form(
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
                max_tokens=None if request.limit is None else min(request.limit, room),
                stop=_stops(request, renderer.get_stop_sequences()),
                grammar=chat_grammar(request, renderer, prompt),
                topk_sample_logprobs=request.top_logprobs or 0,
                prompt_logprobs=request.prompt_logprobs is not None,
                topk_prompt_logprobs=request.prompt_logprobs or 0,
            )
            return answer, sample

        answer, sample = await self.in_text_thread(owner, prepare)
        return answer, self._start(owner, weights, [sample])

    async def count(self, owner: str, request: ChatRequest) -> int:
        """Number of tokens of a conversation as it is rendered. Raises as `chat`."""
        request.check()
        weights = await self.weights.find(request.model, owner)
        return await self.in_text_thread(owner, lambda: len(self._rendered(weights, request)[1].to_ints()))

    def _rendered(self, weights: NamedWeights, request: ChatRequest) -> tuple[Renderer, ModelInput]:
        renderer = self._formats.renderer(weights, thinks=request.thinks, effort=request.reasoning_effort)
        messages, prefill = request.begun(request.conversation())
        num_letters = sum(map(_num_letters, messages)) + len(prefill or "")
        check_letters(weights.info.max_context_tokens, num_letters, prompt="messages")
        try:
            return renderer, renderer.build_generation_prompt(messages, prefill=prefill)
        except InputError as error:
            raise FieldError("messages", str(error)) from error

    async def completion(self, owner: str, request: CompletionRequest) -> tuple[Completion, Sampling]:
        """Begin the completions of some prompts. As `chat`."""
        request.check()
        weights = await self.weights.find(request.model, owner)
        context = weights.info.max_context_tokens

        def prepare() -> tuple[Completion, list[SampleRequest]]:
            texts, grammar = self._formats.texts(weights), form_grammar(request.form())
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
                        stop=_stops(request),
                        grammar=grammar,
                        topk_sample_logprobs=request.logprobs or 0,
                        prompt_logprobs=request.scores_prompt,
                        topk_prompt_logprobs=request.num_prompt_candidates,
                    )
                )
            completion = Completion(
                request, model=weights.name, prompts=prompts, encoder=texts.encoder, texts=texts.tokens
            )
            return completion, samples

        completion, samples = await self.in_text_thread(owner, prepare)
        return completion, self._start(owner, weights, samples)

    async def generation(self, owner: str, request: GenerateRequest) -> tuple[Generation, Sampling]:
        """Begin samples of a prompt of tokens. As `chat`."""
        request.check()
        weights = await self.weights.find(request.model or self.weights.default, owner)
        params, context = request.sampling_params, weights.info.max_context_tokens
        limit = "sampling_params.max_tokens"
        check_length(context, len(request.token_ids), params.max_tokens, prompt="token_ids", limit=limit)
        sample = _sample_request(
            owner,
            weights,
            request.token_ids,
            **params.sampling() | {"is_streamed": bool(request.stream)},
            max_tokens=params.max_tokens,
            stop=_stops(params),
            grammar=await self.in_text_thread(owner, lambda: form_grammar(params.form())),
            topk_sample_logprobs=params.logprobs or 0,
            prompt_logprobs=params.prompt_logprobs is not None,
            topk_prompt_logprobs=params.prompt_logprobs or 0,
        )
        generation = Generation(request, model=weights.name, prompt=request.token_ids)
        return generation, self._start(owner, weights, [sample])

    async def tokens(self, owner: str, request: TokenizeRequest) -> Tokenized:
        """The tokens of a text or a conversation. Raises as `chat`."""
        request.check()
        weights = await self.weights.find(request.model or self.weights.default, owner)
        context = weights.info.max_context_tokens

        def tokenize() -> Tokenized:
            texts = self._formats.texts(weights)
            if request.prompt is None:
                chat = request.chat(weights.name)
                chat.check()
                tokens = self._rendered(weights, chat)[1].to_ints()
            else:
                check_letters(context, len(request.prompt), prompt="prompt")
                adds = request.add_special_tokens is not False
                tokens = list(texts.encoder.tokenizer.encode(request.prompt, add_special_tokens=adds))
            strings = [texts.tokens[token].spelled for token in tokens] if request.return_token_strs else None
            return Tokenized(tokens=tokens, max_context_tokens=context, strings=strings)

        return await self.in_text_thread(owner, tokenize)

    async def text(self, owner: str, request: DetokenizeRequest) -> str:
        """The text of tokens. Raises as `chat`."""
        weights = await self.weights.find(request.model or self.weights.default, owner)
        if request.tokens and max(request.tokens) >= weights.info.vocab_size:
            most = weights.info.vocab_size - 1
            raise FieldError("tokens", f"tokens has {max(request.tokens)}, and the vocabulary ends at {most}")
        return await self.in_text_thread(owner, lambda: self._formats.texts(weights).encoder.decode(request.tokens))

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


def _stops(request: SamplingFields, ends: Sequence[str | int] = ()) -> list[str | int] | None:
    """What ends an answer besides the model's end tokens; `ends` are those of its format."""
    return [*(() if request.ignore_eos else ends), *request.stops, *(request.stop_token_ids or ())] or None


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
