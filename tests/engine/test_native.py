"""Catches kernels that compute something else than torch does, forward or backward, at any size and precision."""

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cookhouse.engine import TorchEngine
from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, LoraSpec
from cookhouse.engine.elementwise import RmsNorm, RotateHeads, SiluGate
from cookhouse.engine.kernels import kernels_for
from cookhouse.engine.lora import AdapterLayout, LoraSite, Segment, SiteAdapters, Weights
from cookhouse.engine.native import build
from cookhouse.engine.sampler.native.build import library
from cookhouse.engine.softmax import log_sum_exp, logits_gradient
from tests.engine.conftest import random_datums
from tests.engine.families import save_family

EPS = 1e-6

pytestmark = pytest.mark.skipif(kernels_for(torch.zeros(1)) is None, reason="no C++ compiler")


@pytest.fixture(params=[torch.float32, torch.bfloat16])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr("cookhouse.engine.kernels.cpu_kernels", lambda: None)


def _random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _assert_same(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    """`want` is in float64, `dtype` that of the inputs: bf16 carries three digits, however exact the arithmetic."""
    tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-6
    torch.testing.assert_close(
        got.detach().double(), want.detach(), rtol=tolerance, atol=tolerance * float(want.detach().abs().max())
    )


def _check(function: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Values and gradients of an operation against those of its definition in float64."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    y, wanted = function(*leaves), reference(*exact)
    _assert_same(y, wanted, y.dtype)
    dy = _random(*y.shape, dtype=y.dtype, seed=9)
    pairs = zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(wanted, exact, dy.double()), strict=True)
    for got, want in pairs:
        _assert_same(got, want, y.dtype)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.to(x.dtype)


@pytest.mark.parametrize("size", [5, 64, 100])
def test_norm(dtype: torch.dtype, size: int) -> None:
    weight = _random(size, dtype=dtype, seed=1)
    x = _random(7, size, dtype=dtype)
    _check(lambda x: RmsNorm.apply(x, weight, EPS, kernels_for(x)), lambda x: _norm(x, weight), x)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("size", [12, 32, 80])
def test_rotated_heads(dtype: torch.dtype, size: int, is_normed: bool) -> None:
    weight = _random(size, dtype=dtype, seed=1) if is_normed else None
    cos, sin = _random(9, size, dtype=dtype, seed=2), _random(9, size, dtype=dtype, seed=3)

    def reference(x: Tensor) -> Tensor:
        x = x if weight is None else _norm(x, weight)
        first, second = x.chunk(2, -1)
        return x * cos.double().unsqueeze(1) + torch.cat((-second, first), -1) * sin.double().unsqueeze(1)

    def function(x: Tensor) -> Tensor:
        y: Tensor = RotateHeads.apply(x, weight, EPS, cos, sin, kernels_for(x))  # type: ignore[no-untyped-call]
        return y

    _check(function, reference, _random(9, 3, size, dtype=dtype))


def test_gate_of_any_magnitude(dtype: torch.dtype) -> None:
    gate = torch.cat([_random(1100, dtype=dtype), torch.tensor([-1e4, -200.0, -90.0, 90.0, 1e4]).to(dtype)])
    up = _random(1105, dtype=dtype, seed=1)
    _check(
        lambda g, u: SiluGate.apply(g, u, kernels_for(g)),  # type: ignore[no-untyped-call]
        lambda g, u: torch.nn.functional.silu(g) * u,
        gate,
        up,
    )


def test_what_is_no_number_stays_so(dtype: torch.dtype) -> None:
    """A loss that is not finite is told by its value: a kernel must not turn it into one that is."""
    x = torch.full((2, 40), float("nan"), dtype=dtype)
    assert log_sum_exp(x).isnan().all()
    assert SiluGate.apply(x, x, kernels_for(x)).isnan().all()  # type: ignore[no-untyped-call]
    assert RmsNorm.apply(x, x[0], EPS, kernels_for(x)).isnan().all()  # type: ignore[no-untyped-call]


def test_softmax_over_the_vocabulary(dtype: torch.dtype) -> None:
    logits = 20 * _random(4, 3000, dtype=dtype)
    _assert_same(log_sum_exp(logits), torch.logsumexp(logits.double(), -1), torch.float32)
    rows, tokens = torch.tensor([0, 0, 0, 2]), torch.tensor([5, 5, 2999, 0])
    weights = torch.tensor([0.5, -2.0, 1.0, 3.0])
    exact = logits.double().requires_grad_()
    loss = (torch.log_softmax(exact, -1)[rows, tokens] * weights).sum()
    (want,) = torch.autograd.grad(loss, exact)
    _assert_same(logits_gradient(logits.clone(), rows, tokens, weights), want, dtype)


@pytest.mark.parametrize("rank", [1, 16, 20])
def test_adapters_of_short_segments(dtype: torch.dtype, rank: int) -> None:
    """Sizes that are no whole vectors, positions without an adapter, and a segment that only looks."""
    site = LoraSite(name="x", part="mlp", in_features=48, out_features=37)
    layout = AdapterLayout((site,), LoraSpec(rank=rank))
    x, dy = _random(30, 48, dtype=dtype, seed=1), _random(30, 37, dtype=dtype, seed=2)
    y, dx = _random(30, 37, dtype=dtype, seed=3), _random(30, 48, dtype=dtype, seed=4)
    want_y, want_dx = y.double(), dx.double()
    segments, wants = [], []
    for seed, (start, stop) in enumerate([(0, 1), (4, 21), (21, 30)]):
        weights = Weights(layout, _random(layout.num_parameters, dtype=dtype, seed=seed))
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
    _assert_same(y, want_y, dtype)
    _assert_same(dx, want_dx, dtype)
    for flat, want in wants:
        _assert_same(flat, want, torch.float32)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_training_does_not_depend_on_the_kernels(
    family: str, tmp_path: Path, without_kernels: Callable[[], None]
) -> None:
    """A module of another family whose forward means something else would show here."""
    folder = save_family(tmp_path, family)
    data_D = random_datums([40, 1, 23])

    def run() -> tuple[float, Tensor]:
        engine = TorchEngine(base_models=[folder], device="cpu", precision="float32")
        engine.create_model("m", folder, LoraSpec(rank=4))
        engine._model("m").params.add_(_random(engine._model("m").params.numel(), dtype=torch.float32), alpha=0.05)
        (output,) = engine.forward_backward([ForwardBackward(model_id="m", data_D=data_D, loss_fn="cross_entropy")])
        assert isinstance(output, ForwardBackwardOutput)
        return output.metrics["loss:sum"], engine._model("m").gradient

    loss, gradient = run()
    without_kernels()
    plain_loss, plain_gradient = run()
    assert loss == pytest.approx(plain_loss, rel=1e-6)
    torch.testing.assert_close(gradient, plain_gradient, rtol=1e-4, atol=2e-6 * float(plain_gradient.abs().max()))


_SOURCE = 'extern "C" int answer() { return 42; }'


@pytest.mark.parametrize("case", ["a file", "another's"])
def test_kernels_are_built_where_none_can_be_kept(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch kernels lost to a read-only home, and code loaded from a folder that another user may write to."""
    (tmp_path / "answer.cpp").write_text(_SOURCE, encoding="utf-8")
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    if case == "a file":
        cache.write_bytes(b"")
    else:
        monkeypatch.setattr(os, "getuid", lambda: cache.parent.stat().st_uid + 1)
    compiled = build("answer", tmp_path, (), "")
    assert compiled is not None
    assert compiled.answer() == 42
    assert not list(tmp_path.rglob("*.so"))
    assert not list(elsewhere.iterdir())


def test_kernels_are_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.cpp").write_text(_SOURCE, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        assert build("answer", tmp_path, (), "") is not None
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_numbers_near_zero_stay_what_they_are() -> None:
    """Would catch a library whose loading changes the arithmetic of the process, so that results depend on when it is.

    GCC does that for -ffast-math.
    """
    assert library() is not None
    assert float(torch.tensor([1e-39]) * 0.5) > 0


def test_sources_that_do_not_compile_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken.cpp").write_text("this is not C++", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert build("broken", tmp_path, (), "something is slower") is None
    assert "so something is slower" in caplog.text
