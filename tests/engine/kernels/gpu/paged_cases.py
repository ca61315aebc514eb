"""Inputs of paged attention, and the plainest computation of the same."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cookhouse.engine.kernels.gpu.paged_attention import paged_attention

TOLERANCES = {torch.float32: 5e-6, torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Of an output, relative and absolute: weights and output are rounded to its dtype, in the interpreter toward zero."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Pieces of (queries, context), and what a layer asks for."""

    pieces: Sequence[tuple[int, int]] = ((1, 130), (70, 70), (1, 1), (33, 95), (1, 64))
    heads: tuple[int, int] = (4, 2)
    dims: tuple[int, int] = (16, 16)
    window: int | None = None
    has_sinks: bool = False
    softcap: float | None = None
    dtype: torch.dtype = torch.float32
    block_size: int = 16


@dataclass(frozen=True)
class Inputs:
    q_NHD: Tensor
    keys: Tensor
    values: Tensor
    tables_SM: Tensor
    starts_S1: Tensor
    contexts_S: Tensor
    sinks_H: Tensor | None


def make_inputs(case: Case, device: str) -> Inputs:
    """Random inputs over a shuffled cache, in which every slot that no sequence uses is NaN."""
    generator = torch.Generator().manual_seed(0)
    counts = [-(-context // case.block_size) for _, context in case.pieces]
    blocks = torch.randperm(sum(counts) + 1, generator=generator).int()
    tables_SM = torch.full((len(counts), max(counts)), int(blocks[-1]), dtype=torch.int32)
    shapes = [(len(blocks) * case.block_size, case.heads[1], dim) for dim in case.dims]
    keys, values = (torch.full(shape, torch.nan) for shape in shapes)
    for row, (table, (_, context)) in enumerate(zip(torch.split(blocks[:-1], counts), case.pieces, strict=True)):
        tables_SM[row, : len(table)] = table
        slots = _slots(case, table, context)
        keys[slots], values[slots] = (torch.randn(context, *shape[1:], generator=generator) for shape in shapes)
    lengths = [queries for queries, _ in case.pieces]
    q_NHD = torch.randn(sum(lengths), case.heads[0], case.dims[0], generator=generator)
    sinks_H = torch.randn(case.heads[0], generator=generator).to(device, case.dtype) if case.has_sinks else None
    starts_S1 = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    contexts_S = torch.tensor([context for _, context in case.pieces], dtype=torch.int32, device=device)
    q_NHD, keys, values = (t.to(device, case.dtype) for t in (q_NHD, keys, values))
    return Inputs(q_NHD, keys, values, tables_SM.to(device), starts_S1, contexts_S, sinks_H)


def _slots(case: Case, table: Tensor, context: int) -> Tensor:
    offsets = torch.arange(case.block_size, device=table.device)
    return (table.long()[:, None] * case.block_size + offsets).view(-1)[:context]


def run(case: Case, inputs: Inputs) -> Tensor:
    return paged_attention(
        inputs.q_NHD,
        inputs.keys,
        inputs.values,
        inputs.tables_SM,
        inputs.starts_S1,
        inputs.contexts_S,
        block_size=case.block_size,
        max_queries=max(queries for queries, _ in case.pieces),
        min_queries=min(queries for queries, _ in case.pieces),
        scaling=0.3,
        window=case.window,
        sinks_H=inputs.sinks_H,
        softcap=case.softcap,
    )


def reference(case: Case, inputs: Inputs) -> Tensor:
    outs, start = [], 0
    for table, (queries, context) in zip(inputs.tables_SM, case.pieces, strict=True):
        slots = _slots(case, table, context)
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
