# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of `paged_attention`.

Scores and their maxima are in base 2. `CAP` bounds them, 0: nothing does; it is in base 2 too, and `scale` is what
scores are a multiple of, less the cap. A maximum over no scores is `_LEAST`, which is finite, so that differences of
maxima are numbers.

Legend: H query heads, K key-value heads, G query heads per key-value head, D features of a key, E features of a value,
C chunks, R rows of a tile (the G heads of some queries), T keys of a step.
"""

import triton
import triton.language as tl

_LEAST = tl.constexpr(-1e30)
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["table_width", "num_chunks"])
def decode_kernel(
    q,
    keys,
    values,
    tables,
    starts,
    contexts,
    sinks,
    out,
    sums,
    maxima,
    totals,
    num_chunks,
    scale,
    table_width,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    D_PAD: tl.constexpr,
    E_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    PRECISION: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    CHUNK: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Chunks of one piece of one query and one key-value head: those of this worker. `IS_WHOLE`: there is one."""
    piece, head, worker = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(starts + piece)
    if tl.load(starts + piece + 1) - row != 1:
        return
    context = tl.load(contexts + piece)
    first_key = _first_seen(context - 1, WINDOW)
    first_chunk = first_key // CHUNK
    offsets_R = tl.arange(0, R)
    is_real_R = offsets_R < G
    heads_R = head * G + offsets_R
    rows_R = row.to(tl.int64) * (K * G) + heads_R
    q_RD = _load_rows(q, rows_R, is_real_R, D, D_PAD)
    positions_R = tl.full([R], 0, tl.int32) + (context - 1)
    for chunk in range(first_chunk + worker, (context + CHUNK - 1) // CHUNK, tl.num_programs(2)):
        sums_RE, maxima_R, totals_R = _scan(
            q_RD,
            positions_R,
            keys,
            values,
            tables + piece.to(tl.int64) * table_width,
            tl.maximum(chunk * CHUNK, first_key // T * T),
            tl.minimum((chunk + 1) * CHUNK, context),
            head,
            scale,
            K,
            D,
            E,
            D_PAD,
            E_PAD,
            BLOCK_SIZE,
            WINDOW,
            CAP,
            PRECISION,
            R,
            T,
        )
        if IS_WHOLE:
            out_RE = _finish(sums_RE, maxima_R, totals_R, sinks, heads_R, is_real_R)
            _store_rows(out, rows_R, is_real_R, out_RE, E, E_PAD)
        else:
            partial_R = (piece.to(tl.int64) * (K * G) + heads_R) * num_chunks + (chunk - first_chunk)
            _store_rows(sums, partial_R, is_real_R, sums_RE, E, E_PAD)
            tl.store(maxima + partial_R, maxima_R, is_real_R)
            tl.store(totals + partial_R, totals_R, is_real_R)


@triton.jit(do_not_specialize=["num_chunks"])
def combine_kernel(
    starts,
    contexts,
    sinks,
    out,
    sums,
    maxima,
    totals,
    num_chunks,
    H: tl.constexpr,
    E: tl.constexpr,
    E_PAD: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One head of one piece: its chunks, sixteen at a time in order."""
    piece, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(starts + piece)
    if tl.load(starts + piece + 1) - row != 1:
        return
    context = tl.load(contexts + piece)
    count = (context + CHUNK - 1) // CHUNK - _first_seen(context - 1, WINDOW) // CHUNK
    base = (piece.to(tl.int64) * H + head) * num_chunks
    sum_1E = tl.full([1, E_PAD], 0.0, tl.float32)
    maximum_1 = tl.full([1], _LEAST, tl.float32)
    total_1 = tl.full([1], 0.0, tl.float32)
    for first in range(0, count, 16):
        chunks_C = first + tl.arange(0, 16)
        is_real_C = chunks_C < count
        maxima_C = tl.load(maxima + base + chunks_C, is_real_C, other=_LEAST)
        totals_C = tl.load(totals + base + chunks_C, is_real_C, other=0.0)
        sums_CE = _load_rows(sums, base + chunks_C, is_real_C, E, E_PAD)
        raised_1 = tl.maximum(maximum_1, tl.max(maxima_C, 0))
        fade_1 = tl.exp2(maximum_1 - raised_1)
        weights_C = tl.exp2(maxima_C - raised_1)
        sum_1E = sum_1E * fade_1[:, None] + tl.sum(sums_CE * weights_C[:, None], 0)[None, :]
        total_1 = total_1 * fade_1 + tl.sum(totals_C * weights_C, 0)
        maximum_1 = raised_1
    is_real_1 = maximum_1 == maximum_1
    heads_1 = head + tl.arange(0, 1)
    out_1E = _finish(sum_1E, maximum_1, total_1, sinks, heads_1, is_real_1)
    _store_rows(out, row.to(tl.int64) * H + heads_1, heads_1 < H, out_1E, E, E_PAD)


@triton.jit(do_not_specialize=["num_pieces", "table_width"])
def read_kernel(
    q,
    keys,
    values,
    tables,
    starts,
    contexts,
    sinks,
    out,
    num_pieces,
    scale,
    table_width,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    D_PAD: tl.constexpr,
    E_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    PRECISION: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """A tile of queries of one piece and one key-value head."""
    # The last tiles of a piece see most: they start first.
    tile, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    QUERIES: tl.constexpr = R // G
    piece = _piece_of(tile, starts, num_pieces, QUERIES)
    start = tl.load(starts + piece)
    count = tl.load(starts + piece + 1) - start
    first_query = (tile - (start // QUERIES + piece)) * QUERIES
    if (count == 1) | (first_query >= count):
        return
    context = tl.load(contexts + piece)
    offsets_R = tl.arange(0, R)
    queries_R = first_query + offsets_R // G
    is_real_R = (offsets_R < QUERIES * G) & (queries_R < count)
    heads_R = head * G + offsets_R % G
    rows_R = (start + queries_R).to(tl.int64) * (K * G) + heads_R
    q_RD = _load_rows(q, rows_R, is_real_R, D, D_PAD)
    first_position = context - count + first_query
    sums_RE, maxima_R, totals_R = _scan(
        q_RD,
        context - count + queries_R,
        keys,
        values,
        tables + piece.to(tl.int64) * table_width,
        _first_seen(first_position, WINDOW) // T * T,
        tl.minimum(first_position + QUERIES, context),
        head,
        scale,
        K,
        D,
        E,
        D_PAD,
        E_PAD,
        BLOCK_SIZE,
        WINDOW,
        CAP,
        PRECISION,
        R,
        T,
    )
    out_RE = _finish(sums_RE, maxima_R, totals_R, sinks, heads_R, is_real_R)
    _store_rows(out, rows_R, is_real_R, out_RE, E, E_PAD)


@triton.jit
def _piece_of(tile, starts, num_pieces, QUERIES: tl.constexpr):
    """The piece that a tile belongs to: tiles of piece s begin at starts[s] // QUERIES + s, so that each has enough."""
    low, high = 0, num_pieces
    while low < high:
        middle = (low + high) // 2
        if tl.load(starts + middle) // QUERIES + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit
def _first_seen(position, WINDOW: tl.constexpr):
    """The first key that a query at this position sees."""
    if WINDOW == 0:
        return position * 0
    return tl.maximum(position - WINDOW + 1, 0)


@triton.jit
def _scan(
    q_RD,
    positions_R,
    keys,
    values,
    table,
    start,
    stop,
    head,
    scale,
    K: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    D_PAD: tl.constexpr,
    E_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAP: tl.constexpr,
    PRECISION: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Sums of values, maxima of scores (in base 2) and totals of weights over the keys from `start` to `stop`."""
    sums_RE = tl.full([R, E_PAD], 0.0, tl.float32)
    maxima_R = tl.full([R], _LEAST, tl.float32)
    totals_R = tl.full([R], 0.0, tl.float32)
    blocks_T = _load_blocks(table, start + tl.arange(0, T), stop, BLOCK_SIZE)
    for first in range(start, stop, T):
        seen_T = first + tl.arange(0, T)
        is_real_T = seen_T < stop
        slots_T = (blocks_T.to(tl.int64) * BLOCK_SIZE + seen_T % BLOCK_SIZE) * K + head
        # A step ahead: addresses that wait for a load of the same step would keep Triton from reading ahead itself.
        blocks_T = _load_blocks(table, seen_T + T, stop, BLOCK_SIZE)
        # Slots past the end are not read: what they hold is anything, and nothing times NaN is NaN.
        k_TD = _load_rows(keys, slots_T, is_real_T, D, D_PAD)
        scores_RT = tl.dot(q_RD, tl.trans(k_TD), input_precision=PRECISION) * scale
        if CAP > 0:
            scores_RT = _tanh(scores_RT) * CAP
        distance_RT = positions_R[:, None] - seen_T[None, :]
        is_seen_RT = (distance_RT >= 0) & is_real_T[None, :]
        if WINDOW > 0:
            is_seen_RT = is_seen_RT & (distance_RT < WINDOW)
        scores_RT = tl.where(is_seen_RT, scores_RT, float("-inf"))
        raised_R = tl.maximum(maxima_R, tl.max(scores_RT, 1))
        weights_RT = tl.exp2(scores_RT - raised_R[:, None])
        fade_R = tl.exp2(maxima_R - raised_R)
        totals_R = totals_R * fade_R + tl.sum(weights_RT, 1)
        v_TE = _load_rows(values, slots_T, is_real_T, E, E_PAD)
        sums_RE = tl.dot(weights_RT.to(v_TE.dtype), v_TE, sums_RE * fade_R[:, None], input_precision=PRECISION)
        maxima_R = raised_R
    return sums_RE, maxima_R, totals_R


@triton.jit
def _tanh(x):
    """Hyperbolic tangent to 4e-7 relative: its series near zero, where one less a number near one has few digits."""
    square = x * x
    series = x * ((((square * (62 / 2835) - 17 / 315) * square + 2 / 15) * square - 1 / 3) * square + 1)
    return tl.where(square < 0.0625, series, 1 - 2 / (tl.exp2(x * (2 * _LOG2E)) + 1))


@triton.jit
def _load_blocks(table, positions_T, stop, BLOCK_SIZE: tl.constexpr):
    """Blocks of positions; any for those from `stop` on."""
    return tl.load(table + positions_T // BLOCK_SIZE, positions_T < stop, other=0)


@triton.jit
def _finish(sums_RE, maxima_R, totals_R, sinks, heads_R, is_real_R):
    """Divide by the total of all weights; a sink has a weight and no value."""
    if sinks is not None:
        sinks_R = tl.load(sinks + heads_R, is_real_R, other=0.0).to(tl.float32) * _LOG2E
        raised_R = tl.maximum(maxima_R, sinks_R)
        fade_R = tl.exp2(maxima_R - raised_R)
        sums_RE = sums_RE * fade_R[:, None]
        totals_R = totals_R * fade_R + tl.exp2(sinks_R - raised_R)
    return sums_RE / totals_R[:, None]


@triton.jit
def _load_rows(source, rows_R, is_real_R, D: tl.constexpr, D_PAD: tl.constexpr):
    """Rows of D features; zeros where there is no row, and in the features that fill up to D_PAD."""
    offsets_D = tl.arange(0, D_PAD)
    mask_RD = is_real_R[:, None]
    if D != D_PAD:
        mask_RD = mask_RD & (offsets_D < D)[None, :]
    return tl.load(source + rows_R[:, None] * D + offsets_D[None, :], mask_RD, other=0.0)


@triton.jit
def _store_rows(target, rows_R, is_real_R, x_RD, D: tl.constexpr, D_PAD: tl.constexpr):
    """Inverse of `_load_rows`, in the dtype of the target."""
    offsets_D = tl.arange(0, D_PAD)
    mask_RD = is_real_R[:, None]
    if D != D_PAD:
        mask_RD = mask_RD & (offsets_D < D)[None, :]
    tl.store(target + rows_R[:, None] * D + offsets_D[None, :], x_RD.to(target.dtype.element_ty), mask_RD)
