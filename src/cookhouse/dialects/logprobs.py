"""Log-probabilities (nats) of tokens, in the two forms that OpenAI has for them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cookhouse.dialects.sampled import SampledSequence, SampleOutput
from cookhouse.dialects.texts import TokenTexts

_LEAST = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token, its log-probability (None: nothing precedes it), and the candidates for its place, likeliest first."""

    token: int
    logprob: float | None
    top: Sequence[tuple[int, float]] = ()


def scored_sample(sequence: SampledSequence) -> list[ScoredToken]:
    """The tokens of a sample."""
    tops = _tops(sequence.topk_tokens_TK, sequence.topk_logprobs_TK, len(sequence.tokens_T))
    triples = zip(sequence.tokens_T.tolist(), sequence.logprobs_T.tolist(), tops, strict=True)
    return [ScoredToken(token, _finite(logprob), top) for token, logprob, top in triples]


def scored_prompt(tokens: Sequence[int], output: SampleOutput) -> list[ScoredToken]:
    """The tokens of a prompt whose log-probabilities were asked for."""
    assert output.prompt_logprobs_T is not None
    tops = _tops(output.topk_prompt_tokens_TK, output.topk_prompt_logprobs_TK, len(tokens))
    rows = zip(tokens, output.prompt_logprobs_T.tolist(), tops, strict=True)
    scored = [ScoredToken(token, _finite(logprob), top) for token, logprob, top in rows]
    return [ScoredToken(tokens[0], None), *scored[1:]]


def prompt_logprobs(scored: Sequence[ScoredToken]) -> list[dict[str, Any] | None]:
    """For each token of a prompt itself and its candidates by id, as vLLM has it; None for the first."""
    places: list[dict[str, Any] | None] = []
    for one in scored:
        if one.logprob is None:
            places.append(None)
            continue
        place = {str(token): {"logprob": logprob, "rank": rank} for rank, (token, logprob) in enumerate(one.top, 1)}
        places.append({str(one.token): {"logprob": one.logprob, "rank": None}} | place)
    return places


def id_name(token: int) -> str:
    """What vLLM calls a token where `return_tokens_as_token_ids` asks for ids in place of texts."""
    return f"token_id:{token}"


def chat_logprobs(scored: Iterable[ScoredToken], texts: TokenTexts, *, by_id: bool = False) -> dict[str, Any]:
    """`logprobs` of a choice of a chat; `by_id`: tokens are called by their ids."""

    def named(token: int, logprob: float | None) -> dict[str, Any]:
        text = texts[token]
        raw = None if text.raw is None else list(text.raw)
        return {"token": id_name(token) if by_id else text.spelled, "logprob": logprob, "bytes": raw}

    content = [
        {**named(one.token, one.logprob), "top_logprobs": [named(token, logprob) for token, logprob in one.top]}
        for one in scored
    ]
    return {"content": content, "refusal": None}


@dataclass
class CompletionLogprobs:
    """`logprobs` of a choice of a completion, as it grows."""

    texts: TokenTexts
    by_id: bool = False
    """True if tokens are called by their ids."""
    _length: int = field(default=0, init=False)
    """Letters so far."""

    def next(self, scored: Iterable[ScoredToken]) -> dict[str, Any]:
        """Logprobs of the next tokens."""
        tokens: list[str] = []
        offsets: list[int] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for one in scored:
            name = self._name(one.token)
            tokens.append(name)
            logprobs.append(one.logprob)
            offsets.append(self._length)
            tops.append(None if one.logprob is None else self._top(one, name))
            self._length += len(self.texts[one.token].spelled)
        return {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, one: ScoredToken, name: str) -> dict[str, float]:
        """By name; where several have one name, the likeliest. The token itself is always among them."""
        top: dict[str, float] = {}
        for token, logprob in one.top:
            top.setdefault(self._name(token), logprob)
        if one.logprob is not None:
            is_ranked = any(token == one.token for token, _ in one.top)
            top[name] = one.logprob if is_ranked else top.get(name, one.logprob)
        return top

    def _name(self, token: int) -> str:
        if self.by_id:
            return id_name(token)
        text = self.texts[token]
        is_whole = text.raw is None or text.raw == text.spelled.encode()
        return text.spelled if is_whole else "bytes:" + "".join(f"\\x{byte:02x}" for byte in text.raw or b"")


def _tops(
    tokens_TK: NDArray[np.int32] | None, logprobs_TK: NDArray[np.float32] | None, length: int
) -> list[list[tuple[int, float]]]:
    if tokens_TK is None or logprobs_TK is None:
        return [[]] * length
    rows = zip(tokens_TK.tolist(), logprobs_TK.tolist(), strict=True)
    return [[(token, _finite(logprob)) for token, logprob in zip(*row, strict=True)] for row in rows]


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST
