"""Catches paged attention that looks past a piece or its window, reads slots of no one, or joins chunks wrongly.

Without a GPU the kernels run through Triton's interpreter, whose products know fp16 and not bf16.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from cookhouse.engine.kernels.gpu import paged_attention as module
from cookhouse.engine.kernels.gpu.paged_attention import paged_attention

BLOCK = 16


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Pieces of (queries, context), and what a layer asks for."""

    pieces: Sequence[tuple[int, int]] = ((1, 130), (70, 70), (1, 1), (33, 95), (1, 64))
    heads: tuple[int, int] = (4, 2)
    dims: tuple[int, int] = (16, 16)
    window: int | None = None
    has_sinks: bool = False
    softcap: float | None = None
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class _Inputs:
    q_NHD: Tensor
    keys: Tensor
    values: Tensor
    tables_SM: Tensor
    starts_S1: Tensor
    contexts_S: Tensor
    sinks_H: Tensor | None


def _inputs(case: _Case, device: str) -> _Inputs:
    """Random inputs over a shuffled cache, in which every slot that no sequence uses is NaN."""
    generator = torch.Generator().manual_seed(0)
    counts = [-(-context // BLOCK) for _, context in case.pieces]
    blocks = torch.randperm(sum(counts) + 1, generator=generator).int()
    tables_SM = torch.full((len(counts), max(counts)), int(blocks[-1]), dtype=torch.int32)
    shapes = [(len(blocks) * BLOCK, case.heads[1], dim) for dim in case.dims]
    keys, values = (torch.full(shape, torch.nan) for shape in shapes)
    for row, (table, (_, context)) in enumerate(zip(torch.split(blocks[:-1], counts), case.pieces, strict=True)):
        tables_SM[row, : len(table)] = table
        slots = _slots(table, context)
        keys[slots], values[slots] = (torch.randn(context, *shape[1:], generator=generator) for shape in shapes)
    lengths = [queries for queries, _ in case.pieces]
    q_NHD = torch.randn(sum(lengths), case.heads[0], case.dims[0], generator=generator)
    sinks_H = torch.randn(case.heads[0], generator=generator).to(device, case.dtype) if case.has_sinks else None
    starts_S1 = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    contexts_S = torch.tensor([context for _, context in case.pieces], dtype=torch.int32, device=device)
    q_NHD, keys, values = (t.to(device, case.dtype) for t in (q_NHD, keys, values))
    return _Inputs(q_NHD, keys, values, tables_SM.to(device), starts_S1, contexts_S, sinks_H)


def _slots(table: Tensor, context: int) -> Tensor:
    return (table.long()[:, None] * BLOCK + torch.arange(BLOCK, device=table.device)).view(-1)[:context]


def _run(case: _Case, inputs: _Inputs) -> Tensor:
    return paged_attention(
        inputs.q_NHD,
        inputs.keys,
        inputs.values,
        inputs.tables_SM,
        inputs.starts_S1,
        inputs.contexts_S,
        block_size=BLOCK,
        max_queries=max(queries for queries, _ in case.pieces),
        min_queries=min(queries for queries, _ in case.pieces),
        scaling=0.3,
        window=case.window,
        sinks_H=inputs.sinks_H,
        softcap=case.softcap,
    )


def _reference(case: _Case, inputs: _Inputs) -> Tensor:
    outs, start = [], 0
    for table, (queries, context) in zip(inputs.tables_SM, case.pieces, strict=True):
        slots = _slots(table, context)
        k, v = (
            t[slots].double().repeat_interleave(case.heads[0] // case.heads[1], 1) for t in (inputs.keys, inputs.values)
        )
        scores = torch.einsum("qhd,khd->hqk", inputs.q_NHD[start : start + queries].double(), k) * 0.3
        if case.softcap is not None:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        start += queries
        positions = torch.arange(context, device=table.device)
        distance = positions[-queries:, None] - positions
        is_hidden = (distance < 0) | (distance >= (case.window or context))
        scores = scores.masked_fill(is_hidden, -torch.inf)
        if inputs.sinks_H is not None:
            scores = torch.cat([scores, inputs.sinks_H.double()[:, None, None].expand(-1, queries, 1)], -1)
        outs.append(torch.einsum("hqk,khe->qhe", scores.softmax(-1)[..., :context], v))
    return torch.cat(outs)


CASES = [
    _Case(heads=(4, 4), dims=(24, 16)),
    _Case(heads=(4, 2), window=40),
    _Case(heads=(8, 2), has_sinks=True, dims=(16, 24)),
    _Case(heads=(5, 1), window=100, dtype=torch.float16),
    _Case(heads=(8, 1), window=1, has_sinks=True, dtype=torch.float16),
    _Case(heads=(4, 1), pieces=[(65, 70), (2, 40)], dtype=torch.float16),
    _Case(heads=(2, 2), pieces=[(1, 64), (1, 65), (1, 1)], dtype=torch.float16),
    _Case(heads=(4, 2), softcap=0.5, has_sinks=True),
    _Case(heads=(4, 2), softcap=20.0, window=40),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_equals_plain_attention(case: _Case, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 64)
    inputs = _inputs(case, device)
    out = _run(case, inputs)
    assert out.dtype == case.dtype
    tolerance = 5e-6 if case.dtype == torch.float32 else 5e-3
    torch.testing.assert_close(out.double(), _reference(case, inputs), rtol=tolerance, atol=tolerance)


def test_what_a_decoding_sequence_gets_depends_on_itself_alone(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks whose bounds, or whose joining, depend on the table's width, the pieces beside or the workers."""
    monkeypatch.setattr(module, "_CHUNK", 64)
    inputs = _inputs(_Case(), device)
    together = _run(_Case(), inputs)
    monkeypatch.setattr(module, "_MIN_WORKERS", 1)
    monkeypatch.setattr(module, "_PROGRAMS", 1)
    for piece, row in ((0, 0), (2, 71), (4, 105)):
        (queries, context), width = _Case().pieces[piece], -(-_Case().pieces[piece][1] // BLOCK)
        alone = _Inputs(
            inputs.q_NHD[row : row + 1],
            inputs.keys,
            inputs.values,
            inputs.tables_SM[piece : piece + 1, :width],
            inputs.starts_S1[:2],
            inputs.contexts_S[piece : piece + 1],
            None,
        )
        assert torch.equal(_run(_Case(pieces=[(queries, context)]), alone), together[row : row + 1])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "dims", "window", "has_sinks", "softcap"),
    [
        ((32, 8), (128, 128), None, False, None),
        ((64, 8), (64, 64), None, True, None),
        ((64, 8), (64, 64), 128, True, None),
        ((128, 128), (192, 128), None, False, None),
        ((28, 4), (128, 128), None, False, None),
        ((8, 4), (256, 256), 128, False, 50.0),
        ((8, 4), (256, 256), None, False, 1.0),
    ],
)
def test_shapes_of_models_equal_plain_attention_on_a_gpu(
    heads: tuple[int, int],
    dims: tuple[int, int],
    window: int | None,
    has_sinks: bool,
    softcap: float | None,
    dtype: torch.dtype,
) -> None:
    pieces = [(1, 5000), (1, 17), (700, 900), (1, 1), (33, 1400), (1, 512)]
    case = _Case(
        pieces=pieces, heads=heads, dims=dims, window=window, has_sinks=has_sinks, softcap=softcap, dtype=dtype
    )
    inputs = _inputs(case, "cuda")
    inputs.q_NHD.mul_(0.2)  # Random scores of many features would leave one key alone to count.
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(_run(case, inputs).double(), _reference(case, inputs), rtol=tolerance, atol=tolerance)
