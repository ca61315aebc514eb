"""Logits as requests change them before a token is drawn: grammar and `min_tokens`, which take tokens away, then bias
and penalties.

Legend: R rows of requests that change anything, V vocabulary, W words of 32 bits, one bit for each token.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.sampler.choose import Choice, takes_away
from cookhouse.engine.sampler.grammar import num_words
from cookhouse.engine.sampler.sequence import Sequence

_NEGLIGIBLE = 1e-6
"""Share of the probability that may be taken away as if it were nothing: fp32 holds no difference."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows as they are drawn from."""

    logits_RV: Tensor
    is_masked: Seq[bool]
    """Whether tokens were taken away that had some of the probability."""


def shape(logits_RV: Tensor, sequences: Seq[Sequence], choices: Seq[Choice]) -> Shaped:
    """Rows of requests that change their logits, and `choices` of how they are drawn from.

    Raises:
        InputError: a grammar cannot be followed any further.
    """
    shaped_RV, is_masked = logits_RV, [False] * len(sequences)
    if any(sequence.constraint is not None or sequence.is_too_short for sequence in sequences):
        bits_RV = _allowed(sequences, logits_RV.shape[1])
        shaped_RV = logits_RV.masked_fill(~upload(bits_RV, logits_RV.device), -torch.inf)
        is_masked = takes_away(logits_RV, shaped_RV, choices, more_than=_NEGLIGIBLE)
    asking = [s.request.has_penalties or bool(s.request.logit_bias) for s in sequences]
    if any(asking):
        shaped_RV = shaped_RV.clone()
        for row, sequence in enumerate(sequences):
            if asking[row]:
                _add(shaped_RV[row], sequence)
    return Shaped(shaped_RV, is_masked)


def _allowed(sequences: Seq[Sequence], vocab_size: int) -> NDArray[np.bool_]:
    """True for each token that may come next (R, V)."""
    words_RW = np.full((len(sequences), num_words(vocab_size)), -1, np.int32)
    for row, sequence in enumerate(sequences):
        if sequence.constraint is not None:
            sequence.constraint.allow(words_RW[row])
    bits_RV = np.unpackbits(words_RW.view(np.uint8), axis=1, count=vocab_size, bitorder="little").view(np.bool_)
    for row, sequence in enumerate(sequences):
        if sequence.is_too_short:
            bits_RV[row, list(sequence.stop_tokens)] = False
    return bits_RV


def _add(logits_V: Tensor, sequence: Sequence) -> None:
    """Add a request's bias and penalties to its logits."""
    request, device = sequence.request, logits_V.device
    if request.logit_bias:
        tokens, values = zip(*request.logit_bias.items(), strict=True)
        logits_V[upload(np.array(tokens), device)] += upload(np.array(values, np.float32), device)
    if request.repetition_penalty != 1:
        seen = upload(np.unique(sequence.tokens), device)
        factor, values_S = request.repetition_penalty, logits_V[seen]
        logits_V[seen] = torch.where(values_S > 0, values_S / factor, values_S * factor)
    tokens_S, counts_S = np.unique(np.array(sequence.tokens[sequence.num_prompt :], np.int64), return_counts=True)
    taken_S = request.frequency_penalty * counts_S + request.presence_penalty
    if len(tokens_S) and taken_S.any():
        logits_V[upload(tokens_S, device)] -= upload(taken_S.astype(np.float32), device)
