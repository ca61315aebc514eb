"""The next token of each row from its logits, by counter-based randomness.

Legend: B rows, V vocabulary, P candidates kept by top-k and top-p.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.softmax import log_sum_exp

_PREFIX = 128
"""Candidates ranked first for top-p alone; rows that it leaves more are ranked whole."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Choice:
    """How a row is sampled. `temperature` 0 is greedy, `top_k` −1 and `top_p` 1 filter nothing."""

    temperature: float
    top_k: int
    top_p: float
    uniform: float
    """In [0, 1): the quantile of the filtered distribution that is drawn."""


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (https://doi.org/10.1145/2714064.2660195), a bijection of 64-bit integers."""
    with np.errstate(over="ignore"):
        z = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


@functools.lru_cache(maxsize=2**14)
def sequence_seed(seed: int, index: int) -> int:
    """Seed of sample `index` of a request."""
    with np.errstate(over="ignore"):
        return int(mix(mix(np.array([seed % 2**64], np.uint64)) + np.uint64(index + 1) * _GOLDEN)[0])


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (sequence seed, position); neighbors in the batch do not matter."""
    with np.errstate(over="ignore"):
        counters = np.array(seeds, np.uint64) + (np.array(positions, np.uint64) + np.uint64(1)) * _GOLDEN
    return (mix(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose(logits_BV: Tensor, choices: Sequence[Choice]) -> tuple[list[int], list[float]]:
    """Tokens and their log-probabilities (nats) under softmax(logits / temperature), before top-k and top-p.

    Greedy rows take the first largest logit and report temperature 1.
    """
    scales = [1.0 / choice.temperature if choice.temperature > 0 else 1.0 for choice in choices]
    scaled_BV = logits_BV * torch.tensor(scales, device=logits_BV.device).unsqueeze(1)
    # As the trainer has it: torch's own log_softmax in fp32 is off by 3e-7 on the average, always to the same side.
    normalizer_B1 = log_sum_exp(scaled_BV).unsqueeze(1)
    logprobs_BV = scaled_BV - normalizer_B1.float()
    tokens = logits_BV.argmax(-1)
    greedy = [i for i, choice in enumerate(choices) if choice.temperature == 0]
    filtered = [i for i, c in enumerate(choices) if c.temperature > 0 and (c.top_k > 0 or c.top_p < 1)]
    plain = sorted(set(range(len(choices))) - set(greedy) - set(filtered))
    if plain:
        rows = torch.tensor(plain, device=logits_BV.device)
        tokens[rows] = _draw(logprobs_BV[rows].exp(), [choices[i] for i in plain])
    for i in filtered:
        ranked_P, candidates_P = _candidates(logprobs_BV[i], choices[i])
        tokens[i] = candidates_P[_draw(ranked_P.unsqueeze(0), [choices[i]])[0]]
    chosen = scaled_BV.gather(1, tokens.unsqueeze(1)).double() - normalizer_B1
    return tokens.tolist(), chosen.squeeze(1).float().tolist()


def _draw(weights_BV: Tensor, choices: Sequence[Choice]) -> Tensor:
    """Index (B,) of the quantile of each row's unnormalized weights."""
    cumulative_BV = weights_BV.double().cumsum(-1)
    uniform_B = torch.tensor([c.uniform for c in choices], dtype=torch.float64, device=weights_BV.device)
    threshold_B1 = (uniform_B * cumulative_BV[:, -1]).unsqueeze(1)
    index_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(1)
    return index_B.clamp_(max=weights_BV.shape[1] - 1)


def _candidates(logprobs_V: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """Probabilities and tokens that top-k, then top-p of what top-k left, keep; most likely first.

    Top-p keeps the fewest tokens whose share of the probability is at least p (https://arxiv.org/abs/1904.09751).
    """
    size = len(logprobs_V)
    if 0 < choice.top_k < size:
        ranked_P, tokens_P = torch.topk(logprobs_V, choice.top_k)
        total = float(ranked_P.exp().sum())
    else:
        ranked_P, tokens_P = torch.topk(logprobs_V, min(size, _PREFIX))
        if float(ranked_P.exp().sum()) < choice.top_p:
            ranked_P, tokens_P = torch.topk(logprobs_V, size)
        total = 1.0
    probs_P = ranked_P.exp()
    before_P = probs_P.double().cumsum(0) - probs_P
    keep = max(1, int((before_P < choice.top_p * total).sum()))
    return probs_P[:keep], tokens_P[:keep]
