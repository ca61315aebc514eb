"""Catches rows in bf16 that come out otherwise among others: a prompt is read at once, and sampled row by row."""

import pytest
import torch
from torch import Tensor, nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.cpu import CausalAttention, cpu_kernels
from cookhouse.engine.kernels.fused import RmsNorm, RotateHeads
from cookhouse.engine.kernels.products import linear, wide_linear
from cookhouse.engine.kernels.rows import rows_kernels
from cookhouse.engine.lora.lora import AdapterLayout, LoraLinear, LoraSite, Routing, Segment, Segments, Weights
from tests.engine.numerics import assert_same, check, random

BF16 = torch.bfloat16
ROWS = 90
SIZES = [(64, 96), (48, 80), (40, 24), (52, 49), (33, 16), (24, 100), (7, 5)]
"""Features in and out: tiles of a matrix unit, vectors, and neither."""

pytestmark = pytest.mark.skipif(
    rows_kernels(torch.zeros(1, 32, dtype=BF16), torch.zeros(32, 32, dtype=BF16)) is None, reason="no C++ compiler"
)


def _adapters(site: LoraSite, ranks: dict[tuple[int, int], int]) -> tuple[Segments, list[Tensor]]:
    """Adapters by the rows that go through them, and the gradient of each, flat."""
    segments, gradients = [], []
    for (start, stop), rank in ranks.items():
        layout = AdapterLayout((site,), LoraSpec(rank=rank))
        weights = Weights(layout, random(layout.num_parameters, dtype=BF16, seed=10 + rank) / 4)
        gradients.append(torch.zeros(layout.num_parameters))
        segments.append(Segment(start=start, stop=stop, weights=weights, gradient=layout.views(gradients[-1])))
    return Segments(segments), gradients


def _site(num_in: int, num_out: int) -> LoraSite:
    return LoraSite(name="x", part="mlp", in_features=num_in, out_features=num_out)


@pytest.mark.parametrize("is_wide", [False, True], ids=["rounded", "wide"])
@pytest.mark.parametrize(("num_in", "num_out"), SIZES)
def test_a_linear_layer(num_in: int, num_out: int, is_wide: bool) -> None:
    """Beside its definition, in parts of any size: ranks of whole tiles and others, and rows of no adapter."""
    x, weight = random(ROWS, num_in, dtype=BF16), random(num_out, num_in, dtype=BF16, seed=1)
    bias = random(num_out, dtype=BF16, seed=2)
    adapters, _ = _adapters(_site(num_in, num_out), {(3, 20): 8, (20, 21): 32, (25, 70): 5, (70, ROWS): 33})

    def run(start: int, stop: int) -> Tensor:
        own = adapters.at_rows(torch.arange(start, stop)).at("x")
        if own is not None:
            return own.linear(x[start:stop], weight, bias, is_wide=is_wide)[0]
        return (wide_linear if is_wide else linear)(x[start:stop], weight, bias)

    whole = run(0, ROWS)
    want = x.double() @ weight.double().T + bias.double()
    for segment in adapters.segments:
        rows, (a, b) = slice(segment.start, segment.stop), (m.double() for m in segment.weights.views["x"])
        want[rows] += segment.weights.layout.scaling * (x[rows].double() @ a.T) @ b.T
    assert_same(whole, want, BF16)
    for size in (1, 2, 3, 16, 37):
        parts = [run(start, min(start + size, ROWS)) for start in range(0, ROWS, size)]
        assert torch.equal(torch.cat(parts), whole), f"{size} rows at once"


@pytest.mark.parametrize(("num_in", "num_out"), SIZES)
def test_gradients_of_adapters(num_in: int, num_out: int) -> None:
    """Would catch what the way back is told of A x: of other rows, scaled twice, or of a rank that was filled up."""
    linear_layer, site, routing = nn.Linear(num_in, num_out, dtype=BF16), _site(num_in, num_out), Routing()
    layer = LoraLinear(linear_layer.requires_grad_(False), site, routing)
    adapters, gradients = _adapters(site, {(3, 20): 8, (20, 21): 32, (25, 70): 5, (70, ROWS): 256})
    x, dy = random(ROWS, num_in, dtype=BF16).requires_grad_(), random(ROWS, num_out, dtype=BF16, seed=1)
    with routing.use(adapters):
        (dx,) = torch.autograd.grad(layer(x), x, dy)
    want = dy.double() @ layer.weight.double()
    for segment, gradient in zip(adapters.segments, gradients, strict=True):
        rows, scaling = slice(segment.start, segment.stop), segment.weights.layout.scaling
        own_x, own_dy, (a, b) = x[rows].double(), dy[rows].double(), (m.double() for m in segment.weights.views["x"])
        low, dlow = scaling * own_x @ a.T, scaling * own_dy @ b
        want[rows] += dlow @ a
        for got, expected in zip(
            segment.weights.layout.views(gradient)["x"], (dlow.T @ own_x, own_dy.T @ low), strict=True
        ):
            assert_same(got, expected, BF16)
    assert_same(dx, want, BF16)


def test_gradients_of_the_weights_of_norms() -> None:
    """Where all weights are trained: of a norm of the residual stream, and of one before heads are rotated."""

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    def residual(x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = RmsNorm.apply(x, weight, 1e-6, kernels_for(weight))  # type: ignore[no-untyped-call]
        return y

    check(residual, norm, random(9, 40, dtype=torch.float32), random(40, dtype=BF16, seed=1))
    cos, sin = (random(9, 24, dtype=torch.float32, seed=seed) for seed in (2, 3))

    def heads(x: Tensor, weight: Tensor) -> Tensor:
        y: Tensor = RotateHeads.apply(x, weight, 1e-6, cos, sin, kernels_for(x))  # type: ignore[no-untyped-call]
        return y

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        normed = norm(x, weight)
        first, second = normed.chunk(2, -1)
        return normed * cos.double().unsqueeze(1) + torch.cat((-second, first), -1) * sin.double().unsqueeze(1)

    check(heads, reference, random(9, 3, 24, dtype=BF16), random(24, dtype=BF16, seed=1))


@pytest.mark.parametrize("window", [None, 5, 40])
@pytest.mark.parametrize("dim", [8, 12, 32, 40, 80])
def test_attention(dim: int, window: int | None) -> None:
    """A position's output is the same whatever comes after it, and in a block of the cache that is not full."""
    inputs = [random(100, heads, dim, dtype=BF16, seed=heads) for heads in (10, 2, 2)]

    def run(count: int) -> Tensor:
        starts = torch.tensor([0, count])
        out: Tensor = CausalAttention.apply(*(t[:count] for t in inputs), starts, 0.3, window, cpu_kernels())  # type: ignore[no-untyped-call]
        return out

    whole = run(100)
    for count in (1, 2, 7, 16, 17, 18, 47, 99):
        assert torch.equal(run(count), whole[:count]), count
