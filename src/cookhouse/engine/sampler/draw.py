"""The next tokens of sequences: drawn from the model's own logits, or from those that their requests change.

Legend: B sequences whose next token is drawn, R those of them whose requests change logits, V vocabulary.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.sampler.choose import Choice, choose, rank, score, sequence_seed, uniforms
from cookhouse.engine.sampler.sequence import Sequence
from cookhouse.engine.sampler.shape import shape


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, its log-probability (nats), and what else is recorded of it."""

    token: int
    logprob: float
    free_logprob: float | None = None
    """Of the model's own distribution; None: nothing changed it."""
    is_masked: bool = False
    """True where tokens were taken away that had some of the probability."""
    ranked: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None
    """The likeliest tokens and their log-probabilities, where they were asked for."""


def draw(sequences: Seq[Sequence], logits_BV: Tensor, rows: Seq[int]) -> list[Drawn]:
    """The next tokens of the sequences in some rows.

    Raises:
        InputError: a grammar cannot be followed any further.
    """
    chosen = [sequences[row] for row in rows]
    if len(rows) < len(logits_BV):
        logits_BV = logits_BV[upload(np.array(rows), logits_BV.device)]
    quantiles = uniforms([sequence_seed(s.seed, s.index) for s in chosen], [len(s.tokens) for s in chosen])
    choices = [
        Choice(s.request.temperature, s.request.top_k, s.request.top_p, float(uniform), s.request.min_p)
        for s, uniform in zip(chosen, quantiles, strict=True)
    ]
    shaped = [row for row, s in enumerate(chosen) if s.request.is_shaped]
    if shaped:
        return _draw_shaped(chosen, logits_BV, choices, shaped)
    return _draw_from(chosen, logits_BV, choices)[0]


def _draw_shaped(chosen: Seq[Sequence], logits_BV: Tensor, choices: Seq[Choice], rows: Seq[int]) -> list[Drawn]:
    """The next tokens where those of some rows are not drawn from the model's own distribution."""
    some, row_choices = [chosen[row] for row in rows], [choices[row] for row in rows]
    is_all = len(rows) == len(chosen)
    rows_R = upload(np.array(rows), logits_BV.device)
    free_RV = logits_BV if is_all else logits_BV[rows_R]
    shaped = shape(free_RV, some)
    shaped_BV = shaped.logits_RV if is_all else logits_BV.index_copy(0, rows_R, shaped.logits_RV)
    drawn, sums = _draw_from(chosen, shaped_BV, choices)
    free, free_sums = score(free_RV, row_choices, [drawn[row].token for row in rows])
    masked = shaped.is_masked(row_choices, free_sums, [sums[row] for row in rows])
    for row, logprob, is_masked in zip(rows, free, masked, strict=True):
        drawn[row] = replace(drawn[row], free_logprob=logprob, is_masked=is_masked)
    return drawn


def _draw_from(chosen: Seq[Sequence], logits_BV: Tensor, choices: Seq[Choice]) -> tuple[list[Drawn], list[float]]:
    """Tokens, and the normalizers of what they are drawn from."""
    tokens, logprobs, sums = choose(logits_BV, choices)
    asking = [row for row, s in enumerate(chosen) if s.request.topk_sample_logprobs]
    ranked = {}
    if asking:
        counts = [chosen[row].request.topk_sample_logprobs for row in asking]
        asked_BV = logits_BV[upload(np.array(asking), logits_BV.device)]
        ranked = dict(zip(asking, rank(asked_BV, [choices[row] for row in asking], counts), strict=True))
    drawn = [
        Drawn(token, logprob, ranked=ranked.get(row))
        for row, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True))
    ]
    return drawn, sums
