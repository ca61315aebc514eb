"""What Triton's kernels are started with in `bench.compiled`: sizes of models, tensors of more than 2³¹ numbers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.gpu.functions import GpuKernels
from cookhouse.engine.kernels.gpu.paged_attention import paged_attention

Call = tuple[str, torch.dtype, Callable[[], None]]
"""What it is as for, the precision of its numbers, and what starts kernels."""

# Heads of queries and of keys, features of a key and of a value, window, sinks, softcap.
_Model = tuple[tuple[int, int], tuple[int, int], int | None, bool, float | None]
_MODELS: dict[str, _Model] = {
    "Qwen3-8B": ((32, 8), (128, 128), None, False, None),
    "gpt-oss": ((64, 8), (64, 64), 128, True, None),
    "DeepSeek-V3": ((128, 128), (192, 128), None, False, None),
    "Gemma 3": ((16, 8), (256, 256), 1024, False, None),
    "Gemma 2": ((16, 8), (256, 256), 4096, False, 50.0),
}
# Lengths of pieces and blocks of a table: for other ones a kernel must not be compiled again.
_PASSES = (([1, 1, 1], 100), ([1] * 16, 128), ([1, 500, 16], 2048), ([33], 33))


def calls() -> Iterator[Call]:
    """Those of each kernel of the package."""
    for dtype in (torch.float32, torch.bfloat16):
        for label, name, arguments in _training(dtype):
            yield label, dtype, partial(GpuKernels(), name, dtype, *arguments)
        for model, shape in _MODELS.items():
            yield model, dtype, partial(_attend, dtype, *shape)


def _training(dtype: torch.dtype) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Labels, functions and arguments."""

    def numbers(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    for size in (2880, 16384):
        rows, weight = numbers(64, size), numbers(size)
        yield f"rows of {size}", "norm", (rows, weight, 1e-6, 64, size, rows)
        yield f"rows of {size}", "norm_backward", (rows, weight, 1e-6, 64, size, rows, rows)
    heads, weight, angles = numbers(64, 32, 128), numbers(128), numbers(64, 128)
    shape = (angles, angles, *heads.shape)
    yield "32 heads of 128", "rotate", (heads, None, 0.0, *shape, heads)
    yield "32 heads of 128, normed", "rotate", (heads, weight, 1e-6, *shape, heads)
    yield "32 heads of 128", "rotate_backward", (None, None, 0.0, *shape, heads, heads)
    yield "32 heads of 128, normed", "rotate_backward", (heads, weight, 1e-6, *shape, heads, heads)
    one = numbers(1)
    yield "one number", "gate", (one, one, 1, one)
    for num_rows in (64, 2**18):
        hidden = numbers(num_rows, 12288)
        label = f"{num_rows} rows of 12288"
        yield label, "gate", (hidden, hidden, hidden.numel(), hidden)
        yield label, "gate_backward", (hidden, hidden, hidden.numel(), hidden, hidden, hidden)
    logits, sums = numbers(2**16, 151936), torch.empty(2**16, dtype=torch.float64, device="meta")
    integers, weights = (torch.empty(2**17, dtype=d, device="meta") for d in (torch.int64, torch.float32))
    yield "rows of 151936", "log_sum_exp", (logits, *logits.shape, sums)
    yield "rows of 151936", "softmax_backward", (logits, *logits.shape, integers, integers, weights)


def _attend(
    dtype: torch.dtype,
    heads: tuple[int, int],
    dims: tuple[int, int],
    window: int | None,
    has_sinks: bool,
    softcap: float | None,
) -> None:
    keys, values = (torch.empty(16, heads[1], dim, dtype=dtype) for dim in dims)
    for lengths, table_width in _PASSES:
        paged_attention(
            torch.empty(sum(lengths), heads[0], dims[0], dtype=dtype),
            keys,
            values,
            torch.empty(len(lengths), table_width, dtype=torch.int32),
            torch.empty(len(lengths) + 1, dtype=torch.int32),
            torch.empty(len(lengths), dtype=torch.int32),
            block_size=16,
            max_queries=max(lengths),
            min_queries=min(lengths),
            scaling=0.1,
            window=window,
            sinks_H=torch.empty(heads[0], dtype=dtype) if has_sinks else None,
            softcap=softcap,
        )
