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
from cookhouse.engine.sampler.choose import Choice, normalizers
from cookhouse.engine.sampler.grammar import num_words
from cookhouse.engine.sampler.sequence import Sequence

_NEGLIGIBLE = 1e-6
"""Nats that a normalizer may lose as if it were nothing: fp32 holds no difference."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows as they are drawn from, and as they were before bias and penalties."""

    logits_RV: Tensor
    masked_RV: Tensor

    def is_masked(self, choices: Seq[Choice], free: Seq[float], drawn_from: Seq[float]) -> list[bool]:
        """Whether tokens were taken away from each row that had some of the probability, by the normalizers of the
        model's own logits and of those that were drawn from.
        """
        kept = drawn_from if self.masked_RV is self.logits_RV else normalizers(self.masked_RV, choices)
        return [whole - part > _NEGLIGIBLE for whole, part in zip(free, kept, strict=True)]


def shape(logits_RV: Tensor, sequences: Seq[Sequence]) -> Shaped:
    """Rows of requests that change their logits.

    Raises:
        InputError: a grammar cannot be followed any further.
    """
    masked_RV = logits_RV
    if any(sequence.constraint is not None or sequence.is_too_short for sequence in sequences):
        bits_RV = _forbidden(sequences, logits_RV.shape[1])
        masked_RV = logits_RV.masked_fill(upload(bits_RV, logits_RV.device), -torch.inf)
    asking = [s.request.has_penalties or bool(s.request.logit_bias) for s in sequences]
    if not any(asking):
        return Shaped(masked_RV, masked_RV)
    shaped_RV = masked_RV.clone()
    for row, sequence in enumerate(sequences):
        if asking[row]:
            _add(shaped_RV[row], sequence)
    return Shaped(shaped_RV, masked_RV)


def _forbidden(sequences: Seq[Sequence], vocab_size: int) -> NDArray[np.bool_]:
    """True for each token that may not come next (R, V)."""
    words_RW = np.full((len(sequences), num_words(vocab_size)), -1, np.int32)
    for row, sequence in enumerate(sequences):
        if sequence.constraint is not None:
            sequence.constraint.allow(words_RW[row])
    np.invert(words_RW, out=words_RW)  # of words, 32 tokens at once
    bits_RV = np.unpackbits(words_RW.view(np.uint8), axis=1, count=vocab_size, bitorder="little").view(np.bool_)
    for row, sequence in enumerate(sequences):
        if sequence.is_too_short:
            bits_RV[row, list(sequence.stop_tokens)] = True
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
