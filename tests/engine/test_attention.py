"""Catches attention that looks across sequences, past its window, or differentiates wrongly."""

import pytest
import torch

from cookhouse.engine.attention import PackedLayout

H, K, D = 6, 2, 8


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: list[int],
    window: int | None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    outs, start = [], 0
    for length in lengths:
        rows = slice(start, start + length)
        start += length
        distance = torch.arange(length)[:, None] - torch.arange(length)
        is_seen = (distance >= 0) & (distance < (window or length))
        keys, values = (t[rows].transpose(0, 1).repeat_interleave(H // K, 0) for t in (k, v))
        scores = q[rows].transpose(0, 1) @ keys.transpose(1, 2) * 0.3
        scores = scores.masked_fill(~is_seen, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(-1, length, 1)], -1)
        outs.append((scores.softmax(-1)[..., :length] @ values).transpose(0, 1))
    return torch.cat(outs)


@pytest.mark.parametrize("window", [None, 1, 5, 150])
@pytest.mark.parametrize("lengths", [[1], [4, 4], [130, 3, 110, 257, 104]])
def test_output_and_gradients_equal_plain_attention(lengths: list[int], window: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(sum(lengths), n, D, generator=generator, dtype=torch.float64) for n in (H, K, K))
    dout = torch.randn(sum(lengths), H, D, generator=generator, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    expected = _reference(q, k, v, lengths, window)
    wanted = torch.autograd.grad(expected, inputs, dout)
    out = PackedLayout(lengths, torch.device("cpu")).attend(0, q, k, v, scaling=0.3, window=window)
    # The softmax is computed in fp32 whatever the inputs are.
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 5])
def test_sinks_and_values_of_another_size_equal_plain_attention(window: int | None) -> None:
    lengths = [130, 3, 110, 257]
    generator = torch.Generator().manual_seed(0)
    shapes = [(H, D), (K, D), (K, D - 3)]
    inputs = [torch.randn(sum(lengths), *shape, generator=generator).double().requires_grad_() for shape in shapes]
    sinks = torch.randn(H, generator=generator).double()
    dout = torch.randn(sum(lengths), H, D - 3, generator=generator).double()
    q, k, v = inputs
    expected = _reference(q, k, v, lengths, window, sinks)
    wanted = torch.autograd.grad(expected, inputs, dout)
    layout = PackedLayout(lengths, torch.device("cpu"))
    out = layout.attend(0, q, k, v, scaling=0.3, window=window, sinks_H=sinks)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
