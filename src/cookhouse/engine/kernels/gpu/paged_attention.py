"""Causal attention of packed pieces over a key-value cache in blocks.

A piece is the latest positions of one sequence, which see everything before them through the sequence's table of
blocks. Pieces of one query (decoding) go through `decode_kernel`, where each program reads chunks of the context, and
`combine_kernel` joins them (https://crfm.stanford.edu/2023/10/12/flashdecoding.html); longer ones go through
`read_kernel`, where each program keeps a tile of queries and runs over all keys that they see. A chunk has `_CHUNK`
keys whatever else is in the pass, so that what a decoding sequence gets depends on nothing but itself. Grids and
scratch follow from shapes: nothing is read back to the host, and a captured CUDA graph stays valid.

Legend: N packed positions, S pieces, M blocks of a table, H query heads, K key-value heads, D features of a key,
E features of a value, C chunks.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from cookhouse.engine.kernels.gpu.launch import launch
from cookhouse.engine.kernels.gpu.paged_kernels import combine_kernel, decode_kernel, read_kernel

_CHUNK = 512
_PROGRAMS = 4096
"""About as many programs as keep a large GPU busy while decoding."""
_MIN_WORKERS = 4
"""Programs that share a decoding sequence's chunks at least, so that a long one among many is not left to one."""
_LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """Sizes of one kernel's tiles, powers of two, and what Triton compiles it for."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int


def tiling_for(dtype: torch.dtype, key_dim: int, group: int, *, is_decoding: bool) -> Tiling:
    """Tiles that fit into a GPU's shared memory: the least, of compute capabilities 8.6 and 12.0, is 99 KiB."""
    is_wide = key_dim > 128
    least_rows = max(16, triton.next_power_of_2(group))
    if dtype == torch.float32:
        # Without tensor cores larger tiles need more registers than there are.
        rows = least_rows if is_decoding or is_wide else max(32, least_rows)
        return Tiling(rows=rows, keys=32, num_warps=8, num_stages=2)
    keys, num_stages = 32 if is_wide else 64, 3 if key_dim <= 192 else 2
    if is_decoding:
        return Tiling(rows=least_rows, keys=keys, num_warps=4, num_stages=num_stages)
    return Tiling(rows=max(64 if is_wide else 128, least_rows), keys=keys, num_warps=8, num_stages=num_stages)


def paged_attention(
    q_NHD: Tensor,
    keys: Tensor,
    values: Tensor,
    tables_SM: Tensor,
    starts_S1: Tensor,
    contexts_S: Tensor,
    *,
    block_size: int,
    max_queries: int,
    min_queries: int,
    scaling: float,
    window: int | None,
    sinks_H: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attention output (N, H, E) over one layer's cache, whose keys are (slots, K, D) and values (slots, K, E).

    Piece s has the rows from `starts_S1[s]` to `starts_S1[s + 1]` and ends at position `contexts_S[s] - 1`; each
    piece has from `min_queries` to `max_queries` rows. Position p of a sequence lies in slot
    `table[p // block_size] * block_size + p % block_size`. Scores, softmax and sums are fp32; fp32 inputs are
    multiplied in full fp32. For sinks and `softcap` see `AttentionLayout`.
    """
    q_NHD = q_NHD.contiguous()
    cached = (keys, values, tables_SM, starts_S1, contexts_S, sinks_H)
    assert all(tensor is None or tensor.is_contiguous() for tensor in cached)
    assert q_NHD.dtype == keys.dtype == values.dtype
    num_rows, num_heads, key_dim = q_NHD.shape
    num_kv_heads, value_dim = values.shape[1:]
    num_pieces, table_width = tables_SM.shape
    group = num_heads // num_kv_heads
    out_NHE = q_NHD.new_empty(num_rows, num_heads, value_dim)
    tensors = (q_NHD, *cached, out_NHE)
    shape: dict[str, Any] = {
        "scale": scaling * _LOG2E if softcap is None else scaling / softcap,
        "table_width": table_width,
        "K": num_kv_heads,
        "G": group,
        "D": key_dim,
        "E": value_dim,
        "D_PAD": max(16, triton.next_power_of_2(key_dim)),
        "E_PAD": max(16, triton.next_power_of_2(value_dim)),
        "BLOCK_SIZE": block_size,
        "WINDOW": window or 0,
        "CAP": 0.0 if softcap is None else softcap * _LOG2E,
        "PRECISION": "ieee" if q_NHD.dtype == torch.float32 else "tf32",
    }
    if min_queries == 1:
        _decode(*tensors, shape, tiling_for(q_NHD.dtype, key_dim, group, is_decoding=True))
    if max_queries > 1:
        tiling = tiling_for(q_NHD.dtype, key_dim, group, is_decoding=False)
        num_tiles = num_rows // (tiling.rows // group) + num_pieces
        launch(read_kernel, (num_tiles, num_kv_heads), *tensors, num_pieces, **shape, **_options(tiling))
    return out_NHE


def _decode(
    q_NHD: Tensor,
    keys: Tensor,
    values: Tensor,
    tables_SM: Tensor,
    starts_S1: Tensor,
    contexts_S: Tensor,
    sinks_H: Tensor | None,
    out_NHE: Tensor,
    shape: dict[str, Any],
    tiling: Tiling,
) -> None:
    """Compute the pieces of one query."""
    num_heads, value_dim = out_NHE.shape[1:]
    num_pieces, num_kv_heads = len(contexts_S), keys.shape[1]
    num_chunks = triton.cdiv(shape["table_width"] * shape["BLOCK_SIZE"], _CHUNK)
    if shape["WINDOW"]:
        num_chunks = min(num_chunks, triton.cdiv(shape["WINDOW"] - 1, _CHUNK) + 1)
    num_workers = min(num_chunks, max(_MIN_WORKERS, _PROGRAMS // (num_pieces * num_kv_heads)))
    # One chunk needs no combining: its program writes the output itself.
    partial = (num_pieces, num_heads, num_chunks if num_chunks > 1 else 0)
    sums_SHCE = q_NHD.new_empty(*partial, value_dim, dtype=torch.float32)
    maxima_SHC, totals_SHC = (q_NHD.new_empty(partial, dtype=torch.float32) for _ in range(2))
    scratch = (out_NHE, sums_SHCE, maxima_SHC, totals_SHC, num_chunks)
    cached = (q_NHD, keys, values, tables_SM, starts_S1, contexts_S, sinks_H)
    grid = (num_pieces, num_kv_heads, num_workers)
    is_whole = num_chunks == 1
    launch(decode_kernel, grid, *cached, *scratch, **shape, IS_WHOLE=is_whole, CHUNK=_CHUNK, **_options(tiling))
    if not is_whole:
        sizes = {"H": num_heads, "E": value_dim, "E_PAD": shape["E_PAD"], "WINDOW": shape["WINDOW"]}
        tables = (starts_S1, contexts_S, sinks_H)
        launch(combine_kernel, (num_pieces, num_heads), *tables, *scratch, **sizes, CHUNK=_CHUNK, num_warps=4)


def _options(tiling: Tiling) -> dict[str, Any]:
    return {"R": tiling.rows, "T": tiling.keys, "num_warps": tiling.num_warps, "num_stages": tiling.num_stages}
