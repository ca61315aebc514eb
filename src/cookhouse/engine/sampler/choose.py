"""The next token of each row from its logits, by counter-based randomness.

Probabilities are added as integers, in units of 2^-62: such sums are exact, so that a draw depends neither on the order
in which a device adds (of floating point, `torch.cumsum` on CUDA gives other last digits from run to run, and with the
number of rows) nor on the row's neighbors. What is below a unit is never drawn.

Legend: B rows of a call, R rows of one kind among them, V vocabulary, P candidates ranked first.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.kernels.softmax import log_sum_exp
from cookhouse.engine.kernels.upload import upload

_PREFIX = 128
"""Candidates ranked first for top-p alone; rows that it leaves more are ranked whole."""
_WIDEST_PREFIX = 1024
"""Rows with a larger top-k are ranked whole, so that their neighbors need not be."""
_CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**24}
"""Logits of the rows chosen at once, by kind of device, which bounds temporaries: on a CPU they stay in its cache."""
_BYTES_EACH = 36
"""Temporaries of a logit on a GPU, at most: where whole rows are ranked."""
_ONE = 2.0**62
"""Units in a probability of 1: the sum over any vocabulary stays below 2^63."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Choice:
    """Sampling parameters of a row. `temperature` 0 is greedy; `top_k` −1, `top_p` 1 and `min_p` 0 filter nothing."""

    temperature: float
    top_k: int
    top_p: float
    uniform: float
    """In [0, 1): the quantile of the filtered distribution that is drawn."""
    min_p: float = 0.0

    @property
    def scale(self) -> float:
        """Factor of the logits."""
        return 1.0 / self.temperature if self.temperature > 0 else 1.0

    def limit(self, vocab_size: int) -> int:
        """Candidates that top-k leaves."""
        return min(self.top_k, vocab_size) if self.top_k > 0 else vocab_size


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


def temporary_bytes(device: torch.device, num_rows: int, vocab_size: int) -> int:
    """The most that `choose` takes besides the logits of so many rows."""
    rows = min(num_rows, max(1, _CHUNK_ELEMENTS[device.type] // vocab_size))
    return _BYTES_EACH * rows * vocab_size


def choose(logits_BV: Tensor, choices: Sequence[Choice]) -> tuple[list[int], list[float], list[float]]:
    """Tokens; their log-probabilities (nats) under softmax(logits / temperature), before top-k, top-p and min-p; the
    normalizers, logsumexp(logits / temperature) of each row.

    Greedy rows take the first largest logit and report temperature 1. Of equal logits, the lowest token ranks first.
    """
    if any(choice.min_p > 0 and choice.temperature > 0 for choice in choices):
        choices = _by_top_k(logits_BV, choices)
    size = max(1, _CHUNK_ELEMENTS[logits_BV.device.type] // logits_BV.shape[1])
    tokens: list[int] = []
    logprobs: list[float] = []
    sums: list[float] = []
    for start in range(0, len(choices), size):
        some = _choose(logits_BV[start : start + size], choices[start : start + size])
        tokens += some[0]
        logprobs += some[1]
        sums += some[2]
    return tokens, logprobs, sums


def score(logits_BV: Tensor, choices: Sequence[Choice], tokens: Sequence[int]) -> tuple[list[float], list[float]]:
    """Log-probabilities of given tokens, and the normalizers, as `choose` has them."""
    scaled_BV = _scaled(logits_BV, choices)
    normalizer_B = log_sum_exp(scaled_BV)
    tokens_B1 = upload(np.array(tokens), logits_BV.device).unsqueeze(1)
    logprobs_B = (scaled_BV.gather(1, tokens_B1).squeeze(1).double() - normalizer_B).float()
    logprobs, normalizers = torch.stack([logprobs_B.double(), normalizer_B]).tolist()
    return logprobs, normalizers


def normalizers(logits_BV: Tensor, choices: Sequence[Choice]) -> list[float]:
    """Normalizers of rows as `choose` has them."""
    values: list[float] = log_sum_exp(_scaled(logits_BV, choices)).tolist()
    return values


def rank(
    logits_BV: Tensor, choices: Sequence[Choice], counts: Sequence[int]
) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    """The likeliest tokens of each row, as many as `counts` says, and their log-probabilities as `choose` has them."""
    scaled_BV = _scaled(logits_BV, choices)
    top = torch.topk(scaled_BV, max(counts))
    logprobs_BP = (top.values.double() - log_sum_exp(scaled_BV).unsqueeze(1)).float().cpu().numpy()
    tokens_BP = top.indices.int().cpu().numpy()
    return [(tokens_BP[row, :count], logprobs_BP[row, :count]) for row, count in enumerate(counts)]


def _scaled(logits_BV: Tensor, choices: Sequence[Choice]) -> Tensor:
    """Logits over temperature."""
    if all(choice.scale == 1 for choice in choices):
        return logits_BV.contiguous()
    scale_B1 = upload(np.array([choice.scale for choice in choices], np.float32), logits_BV.device).unsqueeze(1)
    return logits_BV * scale_B1


def _by_top_k(logits_BV: Tensor, choices: Sequence[Choice]) -> list[Choice]:
    """The same choices with min-p as the top-k that it comes to: it keeps the likeliest."""
    found = list(choices)
    rows = [row for row, choice in enumerate(choices) if choice.min_p > 0 and choice.temperature > 0]
    chosen = [choices[row] for row in rows]
    scaled_RV = _scaled(logits_BV[upload(np.array(rows), logits_BV.device)], chosen)
    least_R = scaled_RV.amax(-1) + upload(np.log([choice.min_p for choice in chosen]), logits_BV.device).float()
    counts = (scaled_RV >= least_R.unsqueeze(1)).sum(-1).tolist()
    for row, count in zip(rows, counts, strict=True):
        found[row] = replace(choices[row], top_k=min(choices[row].limit(logits_BV.shape[1]), count), min_p=0.0)
    return found


def _choose(logits_BV: Tensor, choices: Sequence[Choice]) -> tuple[list[int], list[float], list[float]]:
    vocab_size = logits_BV.shape[1]
    kinds: tuple[list[int], list[int], list[int]] = ([], [], [])
    for row, choice in enumerate(choices):
        kinds[0 if choice.temperature == 0 else 1 if choice.top_k <= 0 and choice.top_p >= 1 else 2].append(row)
    order = [row for rows in kinds for row in rows]
    settings = [(c.scale, c.uniform, c.top_p, c.limit(vocab_size)) for c in choices]
    columns_5B = upload(np.array([*zip(*settings, strict=True), order]), logits_BV.device)
    scaled_BV = logits_BV.contiguous()
    if any(scale != 1 for scale, *_ in settings):
        scaled_BV = logits_BV * columns_5B[0].float().unsqueeze(1)
    # As the trainer has it: torch's own log_softmax in fp32 is off by 3e-7 on the average, always to the same side.
    normalizer_B1 = log_sum_exp(scaled_BV).unsqueeze(1)
    every = _Rows(scaled_BV, normalizer_B1.float(), columns_5B[1:4])
    draw_filtered = functools.partial(_draw_filtered, choices=[choices[row] for row in kinds[2]])
    draws: tuple[_Draw, ...] = (_largest, _draw, draw_filtered)
    tokens_B = _each(every, columns_5B[4], [(len(rows), draw) for rows, draw in zip(kinds, draws, strict=True) if rows])
    logprobs_B1 = (scaled_BV.gather(1, tokens_B.unsqueeze(1)).double() - normalizer_B1).float()
    # Token ids are exact in fp64: one transfer, the only one that waits for the device.
    columns_3B = torch.cat([tokens_B.double(), logprobs_B1.squeeze(1).double(), normalizer_B1.squeeze(1)]).view(3, -1)
    tokens, logprobs, row_normalizers = columns_3B.tolist()
    return [int(token) for token in tokens], logprobs, row_normalizers


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows to draw from."""

    scaled_RV: Tensor
    """Logits over temperature."""
    normalizer_R1: Tensor
    """Logarithm of the sum of their exponentials."""
    settings_3R: Tensor
    """Quantile, top-p and what top-k leaves."""

    def take(self, rows_R: Tensor) -> "_Rows":
        """Some of the rows."""
        return _Rows(self.scaled_RV[rows_R], self.normalizer_R1[rows_R], self.settings_3R[:, rows_R])


_Draw = Callable[[_Rows], Tensor]


def _each(every: _Rows, order_B: Tensor, kinds: Sequence[tuple[int, _Draw]]) -> Tensor:
    """Tokens (B,) of rows of several kinds, how many of each as they follow in `order_B`."""
    if len(kinds) == 1:
        return kinds[0][1](every)
    tokens_B = torch.empty(len(order_B), dtype=torch.int64, device=order_B.device)
    for rows_R, (_, draw) in zip(torch.split(order_B.long(), [count for count, _ in kinds]), kinds, strict=True):
        tokens_B[rows_R] = draw(every.take(rows_R))
    return tokens_B


def _largest(rows: _Rows) -> Tensor:
    """First largest logit (R,) of each row."""
    return rows.scaled_RV.argmax(-1)


def _draw(rows: _Rows) -> Tensor:
    """Token (R,) at each row's quantile, in the order of the vocabulary."""
    units_RV = _cumulative(rows.scaled_RV, rows.normalizer_R1)
    return _quantile(units_RV, units_RV[:, -1:], rows.settings_3R[0]).squeeze(1)


def _draw_filtered(rows: _Rows, choices: Sequence[Choice]) -> Tensor:
    """Token (R,) at each row's quantile of what top-k, then top-p of what top-k left, keep, most likely first.

    Top-p keeps the fewest tokens whose share of the probability is at least p (https://arxiv.org/abs/1904.09751).
    """
    vocab_size = rows.scaled_RV.shape[1]
    limits = [choice.limit(vocab_size) for choice in choices]
    is_short = [limit <= _WIDEST_PREFIX and limit < vocab_size for limit in limits]
    widest = max(limit if short else _PREFIX for limit, short in zip(limits, is_short, strict=True))
    tokens_R, holds_R = _draw_ranked(rows, min(vocab_size, widest))
    if all(is_short):
        return tokens_R
    rest = [row for row, holds in enumerate(holds_R.tolist()) if not holds]
    if rest:
        rest_R = upload(np.array(rest), tokens_R.device)
        tokens_R[rest_R] = _draw_ranked(rows.take(rest_R), max(limits[row] for row in rest))[0]
    return tokens_R


def _draw_ranked(rows: _Rows, num_ranked: int) -> tuple[Tensor, Tensor]:
    """Token (R,) of each row by its `num_ranked` likeliest, and whether (R,) these are enough; else it is arbitrary."""
    uniform_R, top_p_R, top_k_R = rows.settings_3R
    ranked_RP = _ranked(rows.scaled_RV, num_ranked)
    units_RP = _cumulative(ranked_RP, rows.normalizer_R1)
    last_R1 = top_k_R.clamp(max=num_ranked).long().sub_(1).unsqueeze(1)
    is_limited_R = top_k_R < rows.scaled_RV.shape[1]
    total_R = torch.where(is_limited_R, units_RP.gather(1, last_R1).squeeze(1).double(), _ONE)
    wanted_R = total_R.mul_(top_p_R).ceil_().long()
    holds_R = torch.where(is_limited_R, top_k_R <= num_ranked, units_RP[:, -1] >= wanted_R)
    last_R1 = torch.searchsorted(units_RP, wanted_R.unsqueeze(1)).minimum(last_R1)
    rank_R1 = _quantile(units_RP, units_RP.gather(1, last_R1), uniform_R)
    return _ranked_token(rows.scaled_RV, ranked_RP, rank_R1), holds_R


def _ranked(scaled_RV: Tensor, num_ranked: int) -> Tensor:
    """The largest logits (R, P) of each row, in order."""
    if scaled_RV.device.type != "cpu":
        return torch.topk(scaled_RV, num_ranked).values
    # numpy sorts with vector instructions and torch does not: up to 20 × as fast.
    values_RV = scaled_RV.numpy()
    split = values_RV.shape[1] - num_ranked
    values_RP = np.partition(values_RV, split, -1)[:, split:] if split else values_RV
    return torch.from_numpy(np.sort(values_RP, -1)).flip(-1)


def _ranked_token(scaled_RV: Tensor, ranked_RP: Tensor, rank_R1: Tensor) -> Tensor:
    """Token (R,) of a rank. Of equal logits the lowest token comes first, so that it does not depend on how many are
    ranked.
    """
    value_R1 = ranked_RP.gather(1, rank_R1)
    num_before_R1 = rank_R1 - (ranked_RP > value_R1).sum(-1, keepdim=True)
    num_equal_RV = (scaled_RV == value_R1).cumsum(-1, dtype=torch.int32)
    token_R1 = torch.searchsorted(num_equal_RV, num_before_R1.int(), right=True)
    return token_R1.clamp_(max=scaled_RV.shape[1] - 1).squeeze(1)


def _cumulative(scaled_RP: Tensor, normalizer_R1: Tensor) -> Tensor:
    """Sums of probabilities up to each candidate, in units."""
    return (scaled_RP - normalizer_R1).exp_().mul_(_ONE).long().cumsum_(-1)


def _quantile(units_RP: Tensor, total_R1: Tensor, uniform_R: Tensor) -> Tensor:
    """Index (R, 1) of the candidate at a quantile of those that add up to `total_R1`."""
    threshold_R1 = (total_R1 * uniform_R.unsqueeze(1)).long().minimum(total_R1 - 1)
    # Where the logits are not finite nothing is in order; such a row fails by its log-probability.
    return torch.searchsorted(units_RP, threshold_R1, right=True).clamp_(max=units_RP.shape[1] - 1)
