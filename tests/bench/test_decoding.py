"""Catches a share of the bandwidth that counts prefill as decoding, or reads what no step reads."""

from types import SimpleNamespace

import pytest
import torch
from bench.decoding import PROMPT_TOKENS, decode_figures

from bench import decoding


def test_a_step_reads_each_weight_once_and_the_context_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two matrices of bf16, 24 features of keys and values a token; prefill takes a second, a step 10 ms."""
    sites = [SimpleNamespace(in_features=100, out_features=30), SimpleNamespace(in_features=30, out_features=100)]
    base = SimpleNamespace(
        info=SimpleNamespace(vocab_size=50),
        sites=sites,
        dtype=torch.bfloat16,
        cache_shape=SimpleNamespace(num_features=24),
    )
    monkeypatch.setattr(decoding, "_seconds", lambda _engine, _model, _device, _rows, num_new, _size: 1 + num_new / 100)
    monkeypatch.setattr(decoding, "peak_bandwidth", lambda _: (1e9, "as given"))
    figures = decode_figures(SimpleNamespace(_bases={"m": base}), "m", "cpu", 4)
    num_bytes = 2 * 6000 + 4 * (PROMPT_TOKENS + 96) * 24 * 2
    assert figures == pytest.approx(
        {
            "decode_4_milliseconds": 10.0,
            "decode_4_tokens_per_second": 400.0,
            "decode_4_gigabytes": num_bytes / 1e9,
            "decode_4_bandwidth_share": num_bytes / 0.01 / 1e9,
        }
    )
