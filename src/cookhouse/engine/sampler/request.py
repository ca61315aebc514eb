"""A sampling request: its bounds, whatever the memory; its state and reports while it runs; and which of several is to
blame where computing them together fails.

Legend: T tokens of a sample, K candidates for each.
"""

import logging
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from cookhouse.engine.contract import SampledSequence, SampleOutput, SampleRequest
from cookhouse.engine.lora.lora import Weights
from cookhouse.engine.memory import let_go
from cookhouse.engine.model.vocabulary import check_tokens
from cookhouse.engine.sampler.scoring import PromptScores
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.errors import InputError

_MAX_SAMPLES = 1024
_MAX_STOPS = 1024
_MAX_STOP_BYTES = 512
"""As many tokens are read again after each one, while all other requests wait."""
_MAX_ALL_STOP_BYTES = 2**14
"""Each string is looked for after each token."""
_MAX_RANKED = 2**24
"""Candidates of all sampled tokens of a request: 128 MiB, and as much again when they are sent."""
_MIN_TEMPERATURE = 1e-6
"""Logits divided by less may be too large for fp32, and what is likeliest is drawn long before."""
_MAX_BIASED = 1024
"""Each is sent to the device anew for each token."""
_MAX_BIAS = 100.0
_PENALTIES = -2.0, 2.0
_FACTORS = 0.01, 100.0
_NO_TOKENS = SampledSequence(tokens_T=np.empty(0, np.int32), logprobs_T=np.empty(0, np.float32), is_stopped=False)
_T = TypeVar("_T")
_R = TypeVar("_R")
_log = logging.getLogger(__name__)


def min_tokens(request: SampleRequest) -> int:
    """Tokens behind the prompt that there must be room for: without `max_tokens` a sample ends where the room does."""
    return 1 if request.max_tokens is None else request.max_tokens


def check_request(request: SampleRequest, vocab_size: int, context: int) -> None:
    """Refuse a request that no cache could serve.

    Raises:
        InputError: a parameter is out of range, or prompt and `max_tokens` do not fit the context.
    """
    num_prompt, max_tokens = len(request.prompt_T), min_tokens(request)
    if num_prompt == 0:
        raise InputError("the prompt is empty; give at least one token")
    check_tokens("the prompt", request.prompt_T, vocab_size)
    ranges = {
        "num_samples": (request.num_samples, 1, _MAX_SAMPLES),
        "max_tokens": (max_tokens, 1, 2**31),
        "temperature": (request.temperature, 0.0, 1e4),
        "top_k": (request.top_k, -1, 2**31),
        "top_p": (request.top_p, 0.0, 1.0),
        "min_p": (request.min_p, 0.0, 1.0),
        "min_tokens": (request.min_tokens, 0, max_tokens if request.max_tokens is not None else 2**31),
        "frequency_penalty": (request.frequency_penalty, *_PENALTIES),
        "presence_penalty": (request.presence_penalty, *_PENALTIES),
        "repetition_penalty": (request.repetition_penalty, *_FACTORS),
        "topk_prompt_logprobs": (request.topk_prompt_logprobs, 0, min(vocab_size, 1024)),
        "topk_sample_logprobs": (request.topk_sample_logprobs, 0, min(vocab_size, 1024)),
    }
    for name, (value, low, high) in ranges.items():
        if not low <= value <= high:
            raise InputError(f"{name} is {value}; it must be from {low:g} to {high:g}")
    if num_prompt + max_tokens > context:
        # In the words that programs look for, to take it for the end of a conversation.
        raise InputError(
            f"prompt length plus max_tokens exceeds the model's context window: {num_prompt} prompt tokens + "
            f"{max_tokens} max_tokens > {context}; ask for fewer, or shorten the prompt"
        )
    if request.prompt_targets is not None:
        check_tokens("target_prompt_logprobs", request.prompt_targets.tokens_M, vocab_size)
    most_tokens = context - num_prompt if request.max_tokens is None else max_tokens
    num_ranked = request.topk_sample_logprobs * request.num_samples * most_tokens
    if num_ranked > _MAX_RANKED:
        raise InputError(
            f"topk_sample_logprobs {request.topk_sample_logprobs} of {request.num_samples} samples of up to "
            f"{most_tokens} tokens are {num_ranked} candidates; at most {_MAX_RANKED} are kept, so ask for less of each"
        )
    if 0 < request.temperature < _MIN_TEMPERATURE:
        raise InputError(f"temperature is {request.temperature}; use 0 (greedy), or at least {_MIN_TEMPERATURE:g}")
    if len(request.stop or ()) > _MAX_STOPS:
        raise InputError(f"stop holds {len(request.stop or ())} entries; it may hold {_MAX_STOPS}")
    sizes = [len(stop.encode(errors="surrogatepass")) for stop in request.stop or () if isinstance(stop, str)]
    if max(sizes, default=0) > _MAX_STOP_BYTES or sum(sizes) > _MAX_ALL_STOP_BYTES:
        raise InputError(
            f"stop holds strings of {sum(sizes)} bytes, up to {max(sizes)} in one; all together may have "
            f"{_MAX_ALL_STOP_BYTES} and one {_MAX_STOP_BYTES}, since each is looked for after every token; name fewer, "
            "or what they begin with"
        )
    for stop in request.stop or ():
        if stop == "" or (isinstance(stop, int) and not 0 <= stop < vocab_size):
            raise InputError(f"stop holds {stop!r}; give non-empty strings, or token ids below {vocab_size}")
    _check_shape(request, vocab_size)


def _check_shape(request: SampleRequest, vocab_size: int) -> None:
    if len(request.logit_bias) > _MAX_BIASED:
        raise InputError(f"logit_bias has {len(request.logit_bias)} tokens; it may have {_MAX_BIASED}")
    for token, bias in request.logit_bias.items():
        if not 0 <= token < vocab_size:
            raise InputError(f"logit_bias names token {token}; the model has tokens below {vocab_size}")
        if not -_MAX_BIAS <= bias <= _MAX_BIAS:
            raise InputError(f"logit_bias of token {token} is {bias}; it must be from -{_MAX_BIAS:g} to {_MAX_BIAS:g}")
    is_endless = request.ignore_eos or (request.stop is not None and not request.stop)
    if request.grammar is not None and (is_endless or request.min_tokens):
        raise InputError(
            "a grammar says where an answer ends; leave ignore_eos, min_tokens and an empty stop out, or the grammar"
        )


@dataclass
class RunningRequest:
    """Its weights, the sequences that finished, and what was asked about the prompt."""

    request: SampleRequest
    weights: Weights | None
    scores: PromptScores
    finished: dict[int, SampledSequence] = field(default_factory=dict)
    live: list[Sequence] = field(default_factory=list)
    num_reused: int = 0
    """Prompt tokens that the cache already held."""

    def newest(self, sequences: Seq[Sequence]) -> SampleOutput:
        """Output of a step: the last token of each of these sequences, none of the others."""
        by_index = {sequence.index: _sampled(sequence, last=1) for sequence in sequences}
        return self._output(
            [by_index.get(index, _NO_TOKENS) for index in range(self.request.num_samples)], is_partial=True
        )

    def finish(self, sequence: Sequence) -> SampleOutput | None:
        """Take note that a sequence has ended; the answer where it was the last one."""
        self.live.remove(sequence)
        if sequence.index == 0:
            self.num_reused = sequence.num_reused
        self.finished[sequence.index] = _sampled(sequence, last=len(sequence.logprobs))
        if len(self.finished) < self.request.num_samples:
            return None
        return self._output([self.finished[index] for index in range(self.request.num_samples)], is_partial=False)

    def _output(self, sequences: Seq[SampledSequence], *, is_partial: bool) -> SampleOutput:
        return SampleOutput(
            request_id=self.request.request_id,
            is_partial=is_partial,
            sequences=sequences,
            num_reused_tokens=self.num_reused,
            prompt_logprobs_T=self.scores.logprobs_T,
            topk_prompt_tokens_TK=self.scores.topk_tokens_TK,
            topk_prompt_logprobs_TK=self.scores.topk_logprobs_TK,
            target_logprobs_M=self.scores.target_logprobs_M,
        )


def _sampled(sequence: Sequence, *, last: int) -> SampledSequence:
    """The last tokens that were sampled of a sequence."""
    ranked = sequence.ranked[-last:]
    return SampledSequence(
        tokens_T=np.array(sequence.tokens[-last:], np.int32),
        logprobs_T=np.array(sequence.logprobs[-last:], np.float32),
        is_stopped=sequence.is_stopped,
        topk_tokens_TK=np.stack([tokens for tokens, _ in ranked]) if ranked else None,
        topk_logprobs_TK=np.stack([logprobs for _, logprobs in ranked]) if ranked else None,
        free_logprobs_T=np.array(sequence.free_logprobs[-last:], np.float32) if sequence.free_logprobs else None,
        is_masked_T=np.array(sequence.is_masked[-last:], np.bool_) if sequence.is_masked else None,
        is_grammar_end=sequence.is_grammar_end,
    )


def together_or_alone(
    items: Seq[_T], run: Callable[[Seq[_T]], _R], *, what: str
) -> Iterator[tuple[Seq[_T], _R | Exception]]:
    """Results of `run` for all of the items; where it fails, for each alone the result or the error.

    `run` must be one that can be repeated.
    """
    try:
        result: _R | Exception = run(items)
    except Exception as error:
        let_go(error)
        result = error
    if not isinstance(result, Exception) or len(items) == 1:
        yield items, result
        return
    _log.warning("%s of %d sequences failed (%r); each is tried alone", what, len(items), result)
    for item in items:
        yield from together_or_alone([item], run, what=what)
