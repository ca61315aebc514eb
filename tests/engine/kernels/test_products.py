"""Matrix products in fp32 against those in float64, whichever library computes them."""

import pytest
import torch

from cookhouse.engine.kernels import products
from cookhouse.engine.kernels.products import linear, matmul
from tests.engine.numerics import assert_same, check, random


@pytest.fixture(params=[False, True], ids=["torch", "onednn"])
def is_onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Either, whatever this processor is best at; no product is too small."""
    if request.param and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(products, "_is_onednn_ahead", lambda: request.param)
    monkeypatch.setattr(products, "_MIN_PRODUCTS", 0)
    return bool(request.param)


@pytest.mark.parametrize("num_rows", [16, 33, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(num_rows: int, has_bias: bool, is_onednn: bool) -> None:
    del is_onednn
    x_NI, weight_OI = random(num_rows, 96, dtype=torch.float32), random(40, 96, dtype=torch.float32, seed=1)
    bias_O = random(40, dtype=torch.float32, seed=2) if has_bias else None
    wanted = torch.nn.functional.linear(x_NI.double(), weight_OI.double(), None if bias_O is None else bias_O.double())
    assert_same(linear(x_NI, weight_OI, bias_O), wanted, torch.float32)


def test_matrices_of_any_strides(is_onednn: bool) -> None:
    """Would catch a transposed matrix, or rows of a wider one, read as if it lay in memory end to end."""
    del is_onednn
    left, right = random(64, 48, dtype=torch.float32), random(64, 80, dtype=torch.float32, seed=1)
    assert_same(matmul(left.T, right), left.double().T @ right.double(), torch.float32)
    assert_same(matmul(left[:, :32].T, right[:, 7:9]), left.double()[:, :32].T @ right.double()[:, 7:9], torch.float32)
    assert_same(matmul(right.T[5:70], left), right.double().T[5:70] @ left.double(), torch.float32)


def test_what_needs_a_gradient_gets_one(is_onednn: bool) -> None:
    """Would catch a product that ends the graph: oneDNN's operation has no derivative."""
    del is_onednn
    inputs = random(32, 48, dtype=torch.float32), random(24, 48, dtype=torch.float32, seed=1)
    check(linear, torch.nn.functional.linear, *inputs)
    check(linear, torch.nn.functional.linear, *inputs, random(24, dtype=torch.float32, seed=2))
    check(lambda x, w: matmul(x, w.T), torch.nn.functional.linear, *inputs)


@pytest.mark.parametrize(
    ("vendor", "capability", "is_ahead"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        ("", "AVX512", False),
    ],
)
def test_the_choice_goes_by_the_processor(
    vendor: str, capability: str, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by nothing that may be otherwise the next time: a run gets the same bits."""
    monkeypatch.setattr(products, "_vendor", lambda: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert products._is_onednn_ahead.__wrapped__() is is_ahead
