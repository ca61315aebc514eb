"""Catches a sampler that draws from another distribution than it says, or whose draws depend on neighbors."""

import numpy as np
import pytest
import torch

from cookhouse.engine.sampler.choose import Choice, choose, sequence_seed, uniforms

LOGITS_V = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])


def _frequencies(device: str, temperature: float, top_k: int, top_p: float, num_draws: int = 8_000) -> torch.Tensor:
    quantiles = uniforms([sequence_seed(7, 0)] * num_draws, list(range(num_draws)))
    logits_BV = LOGITS_V.to(device).expand(num_draws, 5)
    tokens, *_ = choose(logits_BV, [Choice(temperature, top_k, top_p, float(u)) for u in quantiles])
    return torch.bincount(torch.tensor(tokens), minlength=5) / num_draws


def _expected(temperature: float, kept: list[int]) -> torch.Tensor:
    probs = torch.softmax(LOGITS_V / temperature, -1)
    mask = torch.zeros(5)
    mask[kept] = 1.0
    return probs * mask / (probs * mask).sum()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "kept"),
    [
        (1.0, -1, 1.0, [0, 1, 2, 3, 4]),
        (0.5, -1, 1.0, [0, 1, 2, 3, 4]),
        (1.0, 2, 1.0, [0, 1]),
        (1.0, 99, 1.0, [0, 1, 2, 3, 4]),
        (1.0, -1, 0.6, [0, 1]),
        (1.0, -1, 0.5, [0]),
        (1.0, 3, 0.95, [0, 1, 4]),
        (2.0, 3, 0.7, [0, 1]),
    ],
)
def test_draws_follow_the_filtered_distribution(
    device: str, temperature: float, top_k: int, top_p: float, kept: list[int]
) -> None:
    # Fixed draws; with 8,000 of them a standard deviation is at most 0.0056.
    torch.testing.assert_close(
        _frequencies(device, temperature, top_k, top_p), _expected(temperature, kept), atol=0.015, rtol=0.0
    )


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p", "kept"),
    [
        (1.0, -1, 1.0, 0.3, [0, 1]),  # the likeliest has exp(2), the next exp(1) = 0.37 of it, exp(0.5) = 0.22
        (2.0, -1, 1.0, 0.3, [0, 1, 2, 4]),  # as it is at the temperature
        (1.0, 1, 1.0, 0.1, [0]),
        (1.0, -1, 0.5, 0.1, [0]),
        (1.0, -1, 1.0, 1.0, [0]),
    ],
)
def test_min_p_keeps_what_has_a_share_of_the_likeliest(
    device: str, temperature: float, top_k: int, top_p: float, min_p: float, kept: list[int]
) -> None:
    quantiles = uniforms([sequence_seed(7, 0)] * 8_000, list(range(8_000)))
    choices = [Choice(temperature, top_k, top_p, float(u), min_p) for u in quantiles]
    # Beside rows of another kind, each draws what it would alone.
    tokens, *_ = choose(LOGITS_V.to(device).expand(8_001, 5), [*choices, Choice(0.0, -1, 1.0, 0.5, 0.9)])
    found = torch.bincount(torch.tensor(tokens[:-1]), minlength=5) / 8_000
    torch.testing.assert_close(found, _expected(temperature, kept), atol=0.015, rtol=0.0)
    assert tokens[-1] == 0


def test_logprobs_are_of_the_unfiltered_distribution_at_the_temperature(device: str) -> None:
    for temperature in (0.5, 1.0, 3.0):
        (token,), (logprob,), _ = choose(LOGITS_V.to(device).unsqueeze(0), [Choice(temperature, 2, 0.9, 0.3)])
        assert logprob == pytest.approx(float(torch.log_softmax(LOGITS_V / temperature, -1)[token]), abs=1e-6)


def test_greedy_takes_the_largest_and_reports_temperature_one(device: str) -> None:
    (token,), (logprob,), _ = choose(LOGITS_V.to(device).unsqueeze(0), [Choice(0.0, -1, 1.0, 0.99)])
    assert token == 0
    assert logprob == pytest.approx(float(torch.log_softmax(LOGITS_V, -1)[0]), abs=1e-6)


def test_a_flat_distribution_needs_more_candidates_than_the_prefix(device: str) -> None:
    logits_BV = torch.zeros(400, 1000, device=device)
    quantiles = uniforms([1] * 400, list(range(400)))
    tokens, *_ = choose(logits_BV, [Choice(1.0, -1, 0.9, float(u)) for u in quantiles])
    assert len(set(tokens)) > 200


@pytest.mark.parametrize("top_k", [100, 200, 1000])
def test_top_p_is_of_what_top_k_left(top_k: int, device: str) -> None:
    """Would catch a share taken of the candidates that were ranked first, when top-k leaves more."""
    logits_V = -torch.arange(1000, device=device) * 0.011
    left = torch.softmax(logits_V[:top_k].double(), -1)
    num_kept = int((left.cumsum(0) - left < 0.7).sum())
    tokens, *_ = choose(logits_V.expand(52, -1), [Choice(1.0, top_k, 0.7, 1 - 2.0**-i) for i in range(1, 53)])
    assert max(tokens) == num_kept - 1


def test_rows_do_not_depend_on_their_neighbors(device: str) -> None:
    logits_BV = torch.randn(16, 50, generator=torch.Generator().manual_seed(0)).to(device)
    choices = [Choice(1.0 if i % 2 else 0.0, 5 if i % 3 else -1, 0.8, i / 16) for i in range(16)]
    together, *_ = choose(logits_BV, choices)
    alone = [choose(logits_BV[i : i + 1], choices[i : i + 1])[0][0] for i in range(16)]
    assert together == alone


_MIXED = [
    (0.0, -1, 1.0),
    (1.0, -1, 1.0),
    (0.7, 20, 0.95),
    (1.0, -1, 0.9),
    (3.0, -1, 0.99),
    (1.0, 1500, 0.8),
    (2.0, 64, 1.0),
]


def _reference(logits_V: np.ndarray, choice: Choice) -> int:
    """The token of one row as the papers have it: everything ranked, in fp64."""
    if choice.temperature == 0:
        return int(logits_V.argmax())
    scaled_V = (logits_V * np.float32(1 / choice.temperature)).astype(np.float64)
    order_V = np.arange(len(scaled_V))
    if choice.top_k > 0 or choice.top_p < 1:
        order_V = np.lexsort((order_V, -scaled_V))
    probs_P = np.exp(scaled_V - scaled_V.max())[order_V] / np.exp(scaled_V - scaled_V.max()).sum()
    if 0 < choice.top_k < len(probs_P):
        probs_P = probs_P[: choice.top_k]
        total = probs_P.sum()
    else:
        total = 1.0
    if choice.top_p < 1:
        probs_P = probs_P[: max(1, int((probs_P.cumsum() - probs_P < choice.top_p * total).sum()))]
    cumulative_P = probs_P.cumsum()
    return int(order_V[np.searchsorted(cumulative_P, choice.uniform * cumulative_P[-1], side="right")])


def _mixed(num_rows: int) -> list[Choice]:
    return [Choice(*_MIXED[i % len(_MIXED)], (i * 0.381966) % 1) for i in range(num_rows)]


@pytest.mark.parametrize("chunk", [2**24, 9000])
@pytest.mark.parametrize("step", [0.0, 0.25])
def test_mixed_rows_draw_what_each_would_draw_by_the_definition(
    chunk: int, step: float, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a row with another's filter, a prefix taken for all there is, and equal logits, of which bf16 has
    many, in an order that depends on how many are ranked.
    """
    monkeypatch.setattr("cookhouse.engine.sampler.choose._CHUNK_ELEMENTS", {"cpu": chunk, "cuda": chunk})
    logits_BV = torch.randn(70, 3000, generator=torch.Generator().manual_seed(1)) * 2
    if step:
        logits_BV = (logits_BV / step).round() * step
    choices = _mixed(70)
    tokens, *_ = choose(logits_BV.to(device), choices)
    assert tokens == [_reference(row, choice) for row, choice in zip(logits_BV.numpy(), choices, strict=True)]
    backwards, *_ = choose(logits_BV.flip(0).to(device), choices[::-1])
    assert backwards[::-1] == tokens


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_harms_no_other(bad: float, device: str) -> None:
    """Would catch an index out of range, which on a GPU ends the process, and a failure that is not seen."""
    logits_BV = torch.randn(21, 300, generator=torch.Generator().manual_seed(2))
    choices = _mixed(21)
    expected, *_ = choose(logits_BV.to(device), choices)
    bad_rows = range(0, 21, 2)
    logits_BV[::2, :] = bad
    tokens, logprobs, _ = choose(logits_BV.to(device), choices)
    assert [tokens[i] for i in range(1, 21, 2)] == [expected[i] for i in range(1, 21, 2)]
    assert all(0 <= tokens[i] < 300 and not np.isfinite(logprobs[i]) for i in bad_rows)


def test_uniforms_are_spread_and_differ_by_seed_index_and_position() -> None:
    seeds = [sequence_seed(seed, index) for seed in range(50) for index in range(20)]
    values = uniforms(seeds * 20, [p for p in range(20) for _ in seeds])
    assert len(np.unique(values)) == len(values)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    # The mean of 20,000 uniforms has standard deviation 0.002.
    assert values.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_any_unsigned_64_bit_seed_works(seed: int) -> None:
    assert 0 <= uniforms([sequence_seed(seed, 3)], [5])[0] < 1
