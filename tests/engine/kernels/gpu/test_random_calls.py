"""Catches a kernel that reads or writes elsewhere at some size, stride or address, or is never compared with torch."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from typing import Any

from cookhouse.engine.kernels.gpu import elementwise, paged_attention
from cookhouse.engine.kernels.softmax import log_sum_exp
from tests.engine.kernels.gpu.launched import kernel_names
from tests.engine.kernels.gpu.paged_cases import Case, Inputs, make_inputs, run
from tests.engine.kernels.gpu.random_calls import OPERATIONS, Draw

_CALLS = [
    (operation, dtype)
    for operation in OPERATIONS
    for dtype in (torch.float32, torch.bfloat16, *([torch.float16] if operation == "attention" else []))
]
_SEEDS = [
    pytest.param(range(2), id="some"),
    pytest.param(range(2, 12), id="more", marks=pytest.mark.slow),
    pytest.param(range(12, 60), id="many", marks=pytest.mark.long),
]

pytestmark = pytest.mark.parametrize("kernel_device", ["gpu"], indirect=True)


# Of numpy, in Triton's interpreter: rows that fill up a tile see no key, and what they divide by is zero.
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide:RuntimeWarning")
@pytest.mark.parametrize("seeds", _SEEDS)
@pytest.mark.parametrize(("operation", "dtype"), _CALLS)
def test_random_calls_equal_torch(
    operation: str, dtype: torch.dtype, seeds: range, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, kernels = OPERATIONS[operation]
    started = set()
    for module in (elementwise, paged_attention):
        launch = vars(module)["launch"]

        def noted(kernel: Any, *arguments: Any, launch: Any = launch, **options: Any) -> None:
            started.add(kernel.fn.__name__)
            launch(kernel, *arguments, **options)

        monkeypatch.setattr(module, "launch", noted)
    monkeypatch.setattr(paged_attention, "_CHUNK", 16)
    for seed in seeds:
        try:
            check(Draw(seed, dtype, kernel_device))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert started == set(kernels)


def test_every_kernel_is_called(kernel_device: str) -> None:
    """Would catch a kernel that is new, and that no operation of `random_calls` starts."""
    del kernel_device
    assert kernel_names() == sorted(kernel for _, kernels in OPERATIONS.values() for kernel in kernels)


def _with_gaps(x: Tensor) -> Tensor:
    return torch.stack([x, x], -1)[..., 0]


@pytest.mark.parametrize("name", ["keys", "values", "tables_SM", "starts_S1", "contexts_S", "sinks_H"])
def test_a_cache_with_gaps_is_refused(name: str, kernel_device: str) -> None:
    """Would catch blocks, lengths or sinks that are read at another's place: only queries are copied."""
    case = Case(has_sinks=True, pieces=[(1, 40), (1, 3)])
    inputs = vars(make_inputs(case, kernel_device))
    with pytest.raises(AssertionError):
        run(case, Inputs(**{**inputs, name: _with_gaps(inputs[name])}))


def test_logits_with_gaps_are_refused(kernel_device: str) -> None:
    with pytest.raises(AssertionError):
        log_sum_exp(_with_gaps(torch.zeros(2, 9, device=kernel_device)))


def test_no_pieces(kernel_device: str) -> None:
    case = Case(pieces=[(1, 40)])
    made = make_inputs(case, kernel_device)
    empty = (made.tables_SM[:0], made.starts_S1[:1], made.contexts_S[:0])
    out = paged_attention.paged_attention(
        *(made.q_NHD[:0], made.keys, made.values, *empty),
        block_size=case.block_size,
        max_queries=0,
        min_queries=0,
        scaling=1.0,
        window=None,
    )
    assert out.shape == (0, *case.heads[:1], case.dims[1])
