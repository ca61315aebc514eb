"""Catches a layout of device tensors that writes or reads other slots than the one that gathers.

Without a GPU its kernels run through Triton's interpreter.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from cookhouse.engine.contract import SampledSequence, SampleOutput, SampleRequest
from cookhouse.engine.model.attention import CacheShape, LayerShape
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.sampler import Sampler, runner
from cookhouse.engine.sampler import sampler as sampler_module
from cookhouse.engine.sampler.cache import KeyValueCache, PagedLayout, TableLayout
from cookhouse.engine.sampler.scheduler import Piece
from cookhouse.engine.sampler.sequence import Sequence as Sampled
from tests.engine.numerics import assert_logprobs_near, assert_same

pytest.importorskip("triton")

LAYER = LayerShape(num_kv_heads=2, key_dim=16, value_dim=24)
SHAPE = CacheShape((LAYER,))
NUM_HEADS, BLOCK, NUM_BLOCKS = 4, 16, 12


def _cache(device: str) -> KeyValueCache:
    """A cache of which nothing is known: what was not written is NaN."""
    cache = KeyValueCache(SHAPE, NUM_BLOCKS, BLOCK, torch.device(device), torch.float32)
    for tensor in (*cache.keys.values(), *cache.values.values()):
        tensor.fill_(torch.nan)
    return cache


def _piece(blocks: list[int], start: int, stop: int) -> Piece:
    request = SampleRequest(request_id="r", base_model="m", snapshot_id=None, prompt_T=np.zeros(1, np.int64), seed=0)
    sequence = Sampled(
        request=request,
        index=0,
        tokens=[0] * stop,
        num_prompt=stop,
        max_total=stop,
        seed=0,
        stop_tokens=frozenset(),
        stop_strings=(),
        blocks=blocks,
    )
    return Piece(sequence, start, stop)


def _passes() -> list[list[Piece]]:
    """Prompts whole and in pieces, then decoding, beside another prompt and alone; tables are not in order."""
    first, second, third = [7, 2, 9, 5], [3, 11], [0, 1, 4]
    return [
        [_piece(first, 0, 40), _piece(second, 0, 16)],
        [_piece(second, 16, 17), _piece(first, 40, 51), _piece(third, 0, 33)],
        [_piece(first, 51, 52), _piece(second, 17, 18), _piece(third, 33, 34)],
    ]


def _inputs(num_rows: int, seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((NUM_HEADS, LAYER.key_dim), (LAYER.num_kv_heads, LAYER.key_dim), (LAYER.num_kv_heads, LAYER.value_dim))
    q, k, v = (torch.randn(num_rows, *shape, generator=generator).to(device) for shape in shapes)
    return q, k, v


def _num_rows(pieces: Sequence[Piece]) -> int:
    return sum(piece.stop - piece.start for piece in pieces)


def test_layers_keep_what_each_of_them_needs(device: str) -> None:
    """Catches a layer without keys that takes memory, a budget that counts another, and a copy that leaves one out."""
    wide = LayerShape(num_kv_heads=1, key_dim=32, value_dim=32)
    shape = CacheShape((LAYER, None, wide, LAYER))
    cache = KeyValueCache(shape, NUM_BLOCKS, BLOCK, torch.device(device), torch.float32)
    tensors = [*cache.keys.values(), *cache.values.values()]
    assert list(map(sorted, (cache.keys, cache.values))) == [[0, 2, 3]] * 2
    slots = (NUM_BLOCKS + 1) * BLOCK
    assert [tuple(cache.keys[layer].shape) for layer in (0, 2, 3)] == [(slots, 2, 16), (slots, 1, 32), (slots, 2, 16)]
    assert [tuple(cache.values[layer].shape) for layer in (0, 2, 3)] == [(slots, 2, 24), (slots, 1, 32), (slots, 2, 24)]
    assert sum(tensor.numel() for tensor in tensors) == slots * shape.num_features
    assert (shape.only, SHAPE.only, CacheShape((None, None)).num_features) == (None, LAYER, 0)
    for index, tensor in enumerate(tensors):
        tensor.zero_()
        tensor[3 * BLOCK : 4 * BLOCK] = index + 1.0
    cache.copy_block(3, 7)
    for index, tensor in enumerate(tensors):
        assert tensor[7 * BLOCK : 8 * BLOCK].eq(index + 1.0).all()
        assert int(tensor.count_nonzero()) == 2 * tensor[:BLOCK].numel()


@pytest.mark.parametrize("window", [None, 20])
def test_tables_and_gathering_give_the_same(window: int | None, device: str) -> None:
    gathered, tabled = _cache(device), _cache(device)
    for seed, pieces in enumerate(_passes()):
        q, k, v = _inputs(_num_rows(pieces), seed, device)
        layouts = (PagedLayout(gathered, pieces, q.device), TableLayout.of(pieces, tabled, q.device))
        expected, out = (layout.attend(0, q, k, v, scaling=0.3, window=window) for layout in layouts)
        assert_same(out, expected, torch.float32)
    torch.testing.assert_close(tabled.keys[0], gathered.keys[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(tabled.values[0], gathered.values[0], rtol=0, atol=0, equal_nan=True)


def test_rows_of_no_sequence_change_nothing(device: str) -> None:
    """Catches padding rows of a captured step that write into a sequence's block, or whose NaN spreads."""
    plain, padded = _cache(device), _cache(device)
    for seed, pieces in enumerate(_passes()):
        q, k, v = _inputs(_num_rows(pieces), seed, device)
        layout = TableLayout.of(pieces, plain, q.device)
        expected = layout.attend(0, q, k, v, scaling=0.3, window=None)
        TableLayout.of(pieces, padded, q.device).attend(0, q, k, v, scaling=0.3, window=None)
    scratch = torch.tensor([padded.scratch_block] * 2, device=device)
    wider = TableLayout(
        cache=padded,
        slots_N=torch.cat([layout.slots_N, scratch * BLOCK]),
        tables_SM=torch.cat([layout.tables_SM, scratch[:, None].expand(-1, layout.tables_SM.shape[1]).int()]),
        starts_S1=torch.arange(len(pieces) + 3, dtype=torch.int32, device=device),
        contexts_S=torch.cat([layout.contexts_S, torch.ones_like(scratch).int()]),
        max_queries=1,
    )
    rows = [torch.cat([t, torch.full_like(t[:2], torch.nan)]) for t in (q, k, v)]
    out = wider.attend(0, *rows, scaling=0.3, window=None)
    assert torch.equal(out[: len(pieces)], expected)
    assert torch.equal(padded.keys[0][: NUM_BLOCKS * BLOCK].nan_to_num(), plain.keys[0][:-BLOCK].nan_to_num())


def test_attending_reads_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a host read, or a tensor on another device: a capture fails on either, and an eager pass would wait."""
    from cookhouse.engine.kernels.gpu import paged_attention as module

    grids: list[tuple[int, ...]] = []
    monkeypatch.setattr(module, "launch", lambda _kernel, grid, *_, **__: grids.append(grid))
    with FakeTensorMode(), torch.no_grad():
        cache = KeyValueCache(SHAPE, NUM_BLOCKS, BLOCK, torch.device("cuda"), torch.bfloat16)
        layout = TableLayout(
            cache=cache,
            slots_N=torch.empty(8, dtype=torch.int64, device="cuda"),
            tables_SM=torch.empty(8, 100, dtype=torch.int32, device="cuda"),
            starts_S1=torch.empty(9, dtype=torch.int32, device="cuda"),
            contexts_S=torch.empty(8, dtype=torch.int32, device="cuda"),
            max_queries=1,
        )
        q, k, v = (
            torch.empty(8, num_heads, dim, dtype=torch.bfloat16, device="cuda")
            for num_heads, dim in ((NUM_HEADS, 16), (2, 16), (2, 24))
        )
        out = layout.attend(0, q, k, v, scaling=0.3, window=None)
        assert out.shape == (8, NUM_HEADS, LAYER.value_dim)
    # 1600 positions are four chunks; each is read by a program and joined by another.
    assert grids == [(8, 2, 4), (8, 4)]


def test_a_sampler_over_tables_gives_the_same_tokens(
    qwen3_folder: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a layout that loses blocks which sequences share, or rows that change places."""
    base = BaseModel.load(qwen3_folder, torch.device(device), torch.float32)
    monkeypatch.setattr(sampler_module, "can_page", lambda *_: False)  # No graphs: both go through the runner's passes.
    expected = _sample(base)
    monkeypatch.setattr(runner, "PagedLayout", lambda cache, pieces, device: TableLayout.of(pieces, cache, device))
    for got, want in zip(_sample(base), expected, strict=True):
        assert got.tokens_T.tolist() == want.tokens_T.tolist()
        assert_logprobs_near(got.logprobs_T, want.logprobs_T)


def _sample(base: BaseModel) -> list[SampledSequence]:
    """Greedy samples: two of one prompt, and one of a prompt that is read while they decode."""
    sampler = Sampler(base, 2**20, is_native=False)
    prompt_T = np.random.default_rng(5).integers(0, 256, 37)
    sequences: list[SampledSequence] = []
    for request_id, length, num_samples in (("a", 37, 2), ("b", 21, 1)):
        request = SampleRequest(
            request_id=request_id,
            base_model=base.name,
            snapshot_id=None,
            prompt_T=prompt_T[:length],
            seed=0,
            num_samples=num_samples,
            max_tokens=6,
            temperature=0.0,
            stop=[],
        )
        sampler.submit(request, None)
        sampler.step()
    while sampler.has_work:
        for output in sampler.step():
            assert isinstance(output, SampleOutput)
            sequences += output.sequences
    return sequences
