"""Catches kernels of adapters that compute something else than torch does."""

import pytest
import torch

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.kernels.cpu import cpu_kernels
from cookhouse.engine.kernels.cpu.decode.build import library
from cookhouse.engine.lora.lora import AdapterLayout, LoraSite, Segment, SiteAdapters, Weights
from tests.engine.numerics import assert_same, random

pytestmark = pytest.mark.skipif(cpu_kernels() is None, reason="no C++ compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [1, 16, 20])
def test_adapters_of_short_segments(dtype: torch.dtype, rank: int) -> None:
    """Sizes that are no whole vectors, positions without an adapter, and a segment that only looks."""
    site = LoraSite(name="x", part="mlp", in_features=48, out_features=37)
    layout = AdapterLayout((site,), LoraSpec(rank=rank))
    x, dy = random(30, 48, dtype=dtype, seed=1), random(30, 37, dtype=dtype, seed=2)
    y, dx = random(30, 37, dtype=dtype, seed=3), random(30, 48, dtype=dtype, seed=4)
    want_y, want_dx = y.double(), dx.double()
    segments, wants = [], []
    for seed, (start, stop) in enumerate([(0, 1), (4, 21), (21, 30)]):
        weights = Weights(layout, random(layout.num_parameters, dtype=dtype, seed=seed))
        flat = torch.ones(layout.num_parameters)
        gradient = None if seed == 2 else layout.views(flat)
        segments.append(Segment(start=start, stop=stop, weights=weights, gradient=gradient))
        a, b = (matrix.double() for matrix in weights.views["x"])
        rows = slice(start, stop)
        low, dlow = x[rows].double() @ a.T, dy[rows].double() @ b * layout.scaling
        want_y[rows] += layout.scaling * low @ b.T
        want_dx[rows] += dlow @ a
        da, db = dlow.T @ x[rows].double(), layout.scaling * dy[rows].double().T @ low
        wants.append(
            (flat, torch.cat([da.flatten(), db.flatten()]) + 1 if seed < 2 else torch.ones_like(flat).double())
        )
    adapters = SiteAdapters("x", segments)
    adapters.backward(x, adapters.apply(x, y), dy, dx)
    assert_same(y, want_y, dtype)
    assert_same(dx, want_dx, dtype)
    for flat, want in wants:
        assert_same(flat, want, torch.float32)


def test_numbers_near_zero_stay_what_they_are() -> None:
    """Would catch a library whose loading changes the arithmetic of the process, so that results depend on when it is.

    GCC does that for -ffast-math.
    """
    assert library() is not None
    assert float(torch.tensor([1e-39]) * 0.5) > 0
