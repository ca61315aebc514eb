"""Catches what the matrix unit computes otherwise than its definition says, at shapes that are no whole blocks."""

import itertools

import pytest
import torch
from torch import Tensor

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.kernels import tiled
from cookhouse.engine.kernels.cpu import CausalAttention, cpu_kernels
from cookhouse.engine.kernels.tiled import TiledProduct, tiles_for
from cookhouse.engine.lora.lora import AdapterLayout, LoraSite, Segment, SiteAdapters, Weights
from tests.engine.numerics import assert_same, random

BF16 = torch.bfloat16
IN, OUT, ROWS = 96, 64, 80

pytestmark = pytest.mark.skipif(
    tiles_for(torch.zeros(1, 32, dtype=BF16), torch.zeros(32, 32, dtype=BF16)) is None,
    reason="no matrix unit (AMX), or no C++ compiler",
)


def _segments(rank: int, ranges: list[tuple[int, int]]) -> list[Segment]:
    """The first takes no gradient; those of the others begin at one."""
    layout = AdapterLayout((LoraSite(name="x", part="mlp", in_features=IN, out_features=OUT),), LoraSpec(rank=rank))
    segments = []
    for seed, (start, stop) in enumerate(ranges):
        weights = Weights(layout, random(layout.num_parameters, dtype=BF16, seed=10 + seed) / 4)
        gradient = layout.views(torch.ones(layout.num_parameters)) if seed else None
        segments.append(Segment(start=start, stop=stop, weights=weights, gradient=gradient))
    return segments


def _run(x: Tensor, weight: Tensor, bias: Tensor | None, segments: list[Segment], dy: Tensor) -> tuple[Tensor, Tensor]:
    leaf, kernels = x.clone().requires_grad_(), tiles_for(x, weight)
    y = TiledProduct.apply(leaf, weight, bias, SiteAdapters("x", segments), kernels)  # type: ignore[no-untyped-call]
    (dx,) = torch.autograd.grad(y, leaf, dy)
    return y.detach(), dx


@pytest.mark.parametrize("is_base_apart", [False, True])
@pytest.mark.parametrize("rank", [1, 16, 70])
def test_layer_and_gradients(rank: int, is_base_apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither segments nor ranks need be whole blocks, and positions around a segment may go through no adapter."""
    if is_base_apart:
        monkeypatch.setattr(tiled, "_MAX_WEIGHT", 0)
    x, dy, weight, bias = (
        random(*shape, dtype=BF16, seed=seed) for seed, shape in enumerate([(ROWS, IN), (ROWS, OUT), (OUT, IN), (OUT,)])
    )
    segments = _segments(rank, [(3, 4), (5, 42), (42, 75)])
    y, dx = _run(x, weight, bias, segments, dy)
    want_y, want_dx = x.double() @ weight.double().T + bias.double(), dy.double() @ weight.double()
    for segment in segments:
        rows, scaling = slice(segment.start, segment.stop), segment.weights.layout.scaling
        a, b = (matrix.double() for matrix in segment.weights.views["x"])
        low, dlow = scaling * x[rows].double() @ a.T, scaling * dy[rows].double() @ b
        want_y[rows] += low @ b.T
        want_dx[rows] += dlow @ a
        if segment.gradient is not None:
            for got, want in zip(
                segment.gradient["x"], (dlow.T @ x[rows].double(), dy[rows].double().T @ low), strict=True
            ):
                assert_same(got, want + 1, BF16)
    assert_same(y, want_y, BF16)
    assert_same(dx, want_dx, BF16)


def test_segments_do_not_depend_on_their_company() -> None:
    """To the bit, though neighbors' rows are not numbers: these would spread through products with zero."""
    x, dy, weight = (
        random(ROWS, IN, dtype=BF16, seed=0),
        random(ROWS, OUT, dtype=BF16, seed=1),
        random(OUT, IN, dtype=BF16, seed=2),
    )
    alone, together = _segments(20, [(0, 0), (0, 37)]), _segments(20, [(0, 9), (9, 46), (46, ROWS)])
    x[:9] = x[46:] = dy[:9] = dy[46:] = float("nan")
    got, want = _run(x, weight, None, together, dy), _run(x[9:46], weight, None, alone[1:], dy[9:46])
    assert all(torch.equal(g[9:46], w) for g, w in zip(got, want, strict=True))
    assert together[1].gradient is not None
    assert alone[1].gradient is not None
    assert all(map(torch.equal, together[1].gradient["x"], alone[1].gradient["x"]))


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize(("key_dim", "value_dim"), [(32, 32), (64, 96)])
def test_attention(key_dim: int, value_dim: int, window: int | None) -> None:
    """Sequences that are no whole blocks, against the kernel that computes in fp32."""
    lengths = [1, 31, 32, 33, 100]
    starts, rows = torch.tensor([0, *itertools.accumulate(lengths)]), sum(lengths)
    shapes = [(rows, 6, key_dim), (rows, 3, key_dim), (rows, 3, value_dim)]
    inputs = [random(*shape, dtype=BF16, seed=seed) for seed, shape in enumerate(shapes)]
    dout = random(rows, 6, value_dim, dtype=BF16, seed=3)

    def run(dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        out = CausalAttention.apply(*leaves, starts, 0.3, window, cpu_kernels())  # type: ignore[no-untyped-call]
        return [out, *torch.autograd.grad(out, leaves, dout.to(dtype))]

    for got, want in zip(run(BF16), run(torch.float32), strict=True):
        assert_same(got, want.double(), BF16)
