"""Catches gated delta layers whose state crosses sequences, whose chunks are not the rule, or whose memory squares."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from cookhouse.engine import switches
from cookhouse.engine.model.attention import PackedLayout, SharedLayout
from cookhouse.engine.model.delta import DeltaInputs, PackedDelta, StateShape, packed
from cookhouse.engine.model.delta.rule import triangular_sums
from cookhouse.errors import InputError
from tests.engine.numerics import assert_same, random

# The channels of a row fill vectors of a processor: the rest of one is computed by other instructions, in other bits.
SHAPE = StateShape(num_key_heads=2, num_value_heads=4, key_dim=8, value_dim=24, num_taps=4)
CPU = torch.device("cpu")
Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def _parts(num_rows: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Parts:
    """Channels, taps, log-decays and rates."""
    mixed = random(num_rows, SHAPE.num_channels, dtype=dtype, seed=seed)
    taps = random(SHAPE.num_channels, SHAPE.num_taps, dtype=dtype, seed=seed + 1)
    decay = -random(num_rows, SHAPE.num_value_heads, dtype=torch.float32, seed=seed + 2).square() / 8
    beta = random(num_rows, SHAPE.num_value_heads, dtype=dtype, seed=seed + 3).sigmoid()
    return mixed, taps, decay, beta


def _packed(lengths: Sequence[int], parts: Parts) -> Tensor:
    return PackedDelta(lengths, CPU).recur(DeltaInputs(*parts, SHAPE))


def _definition(lengths: Sequence[int], parts: Parts) -> Tensor:
    """Position after position, in the precision of the parts; see the head of `rule.py`."""
    mixed, taps, decay, beta = parts
    outs = []
    for rows in torch.split(torch.arange(sum(lengths)), list(lengths)):
        x = torch.cat([mixed.new_zeros(SHAPE.num_taps - 1, SHAPE.num_channels), mixed[rows]])
        state = mixed.new_zeros(SHAPE.num_value_heads, SHAPE.key_dim, SHAPE.value_dim)
        for index, row in enumerate(rows):
            q, k, v = torch.split(silu((x[index : index + SHAPE.num_taps] * taps.T).sum(0)), [16, 16, 96])
            q, k = (_heads(y) / (_heads(y).square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
            state = state * decay[row].exp()[:, None, None]
            u = beta[row, :, None] * (v.view(4, 24) - torch.einsum("hd,hde->he", k, state))
            state = state + k.unsqueeze(2) * u.unsqueeze(1)
            outs.append(torch.einsum("hd,hde->he", q * SHAPE.key_dim**-0.5, state))
    return torch.stack(outs)


def _heads(x: Tensor) -> Tensor:
    return x.view(SHAPE.num_key_heads, SHAPE.key_dim).repeat_interleave(SHAPE.per_key, 0)


@pytest.mark.parametrize("lengths", [[1], [64], [65, 3, 130, 1, 64]], ids=str)
def test_values_and_gradients_are_those_of_the_definition(lengths: list[int]) -> None:
    """Would catch a state or a convolution that goes on into the next sequence, and any term of the chunked form."""
    leaves = [x.requires_grad_() for x in _parts(sum(lengths))]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    out, want = _packed(lengths, tuple(leaves)), _definition(lengths, tuple(exact))  # type: ignore[arg-type]
    assert_same(out, want, torch.float32)
    dout = random(*out.shape, dtype=torch.float32, seed=9)
    pairs = zip(torch.autograd.grad(out, leaves, dout), torch.autograd.grad(want, exact, dout.double()), strict=True)
    for name, (got, expected) in zip(("mixed", "taps", "decay", "beta"), pairs, strict=True):
        # Sums over the positions of a sequence, in which a value is read again by each later one.
        torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()), msg=name)


def test_a_sequence_is_the_same_to_the_bit_whatever_else_is_in_the_pass() -> None:
    """Would catch chunks that are cut, or products whose order of sums goes, by what lies beside a sequence."""
    lengths = [70, 3, 64, 200, 1]
    parts = tuple(x.requires_grad_() for x in _parts(sum(lengths)))
    mixed, taps, decay, beta = parts
    out = _packed(lengths, parts)  # type: ignore[arg-type]
    rows_of = torch.split(torch.arange(sum(lengths)), lengths)
    gradients = torch.autograd.grad(out.square().sum(), (mixed, decay, beta))
    for rows in rows_of:
        own = tuple(x[rows].detach().requires_grad_() for x in (mixed, decay, beta))
        alone = _packed([len(rows)], (own[0], taps.detach(), own[1], own[2]))
        assert torch.equal(alone, out[rows])
        for got, want in zip(torch.autograd.grad(alone.square().sum(), own), gradients, strict=True):
            assert torch.equal(got, want[rows])


def test_what_is_not_finite_stays_in_its_sequence() -> None:
    """Would catch a mask that multiplies, which leaves NaN what it is."""
    parts = _parts(30)
    parts[0][12:20] = torch.nan
    out = _packed([12, 8, 10], parts)
    assert out[12:20].isnan().any()
    assert not out[:12].isnan().any()
    assert not out[20:].isnan().any()


def test_many_and_long_sequences_go_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a wave that begins without the state before it, and gradients that end at its beginning."""
    lengths = [300, 70, 200, 5, 64]
    whole = _wave_results(lengths)
    monkeypatch.setattr("cookhouse.engine.model.delta.chunks._WAVE_CHUNKS", 2)
    for got, want in zip(_wave_results(lengths), whole, strict=True):
        assert_same(got, want, torch.float32)


def _wave_results(lengths: Sequence[int]) -> list[Tensor]:
    leaves = [x.requires_grad_() for x in _parts(sum(lengths))]
    out = _packed(lengths, tuple(leaves))  # type: ignore[arg-type]
    return [out.detach(), *torch.autograd.grad((out * random(*out.shape, dtype=out.dtype, seed=9)).sum(), leaves)]


def test_what_is_kept_for_a_backward_grows_with_the_length_alone() -> None:
    """Would catch scores of all pairs of positions, or the state after every chunk, kept until the backward."""

    def kept_bytes(length: int) -> int:
        seen: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        parts = tuple(x.requires_grad_() for x in _parts(length))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = _packed([length], parts)  # type: ignore[arg-type]
        assert out.requires_grad
        return sum(seen.values())

    per_row = 4 * (2 * SHAPE.num_channels + 2 * SHAPE.num_value_heads)  # what was projected and what was convolved
    assert kept_bytes(512) <= 512 * per_row + 4 * SHAPE.num_channels * SHAPE.num_taps
    # A wave of 64 chunks keeps one state.
    assert kept_bytes(8192) <= 8192 * per_row + 4 * SHAPE.num_channels * SHAPE.num_taps + 2 * SHAPE.num_bytes(
        torch.float32
    )


def test_a_beginning_that_sequences_share_is_as_if_each_had_its_own() -> None:
    """Would catch a state taken from the wrong one of two sequences whose rows are laid once."""
    mixed, taps, decay, beta = _parts(75)
    rows_F = torch.cat([torch.arange(70), torch.arange(66), torch.arange(70, 75)])
    inputs = DeltaInputs(mixed, taps, decay, beta, SHAPE)
    shared = SharedLayout([70, 71], rows_F.numpy(), CPU).recur(0, inputs)
    apart = PackedLayout([70, 71], CPU).recur(0, inputs.at(rows_F))
    assert torch.equal(shared[:70], apart[:70])
    assert torch.equal(shared[70:], apart[136:])


def test_bf16_is_rounded_at_the_ends_alone() -> None:
    """Would catch a state or a sum that is kept in bf16, whose error grows with the length."""
    parts = _parts(400, dtype=torch.bfloat16)
    out = _packed([400], parts)
    assert out.dtype == torch.bfloat16
    want = _definition([400], tuple(x.double() for x in parts))  # type: ignore[arg-type]
    torch.testing.assert_close(out.double(), want, rtol=0, atol=4 * 2.0**-8 * float(want.abs().max()))


def test_sums_of_decays_are_the_same_by_a_product() -> None:
    """Would catch sums of what comes later, where a GPU may not add in an order that varies."""
    decay = -random(2, 3, 64, dtype=torch.float32).square()
    assert_same(triangular_sums(decay), decay.double().cumsum(-1), torch.float32)


def test_the_package_for_it_is_asked_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch heads, scales or sequences that are handed to it otherwise than it takes them."""

    def rule(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, None]:
        """By position, as its page has it: batch, positions, heads, features; queries and keys of any length."""
        assert options["use_qk_l2norm_in_kernel"]
        outs, starts = [], options["cu_seqlens"].tolist()
        state = torch.empty(0)
        for row in range(q.shape[1]):
            state = torch.zeros(v.shape[2], q.shape[3], v.shape[3]) if row in starts else state
            one_q, one_k = (x[0, row] / (x[0, row].square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
            state = state * options["g"][0, row].exp()[:, None, None]
            u = options["beta"][0, row, :, None] * (v[0, row] - torch.einsum("hd,hde->he", one_k, state))
            state = state + one_k.unsqueeze(2) * u.unsqueeze(1)
            outs.append(torch.einsum("hd,hde->he", one_q * options["scale"], state))
        return torch.stack(outs).unsqueeze(0), None

    lengths = [5, 70, 1]
    leaves = [[x.clone().requires_grad_() for x in _parts(sum(lengths))] for _ in range(2)]
    expected = _packed(lengths, tuple(leaves[0]))  # type: ignore[arg-type]
    monkeypatch.setattr(packed, "_fla_rule", lambda: rule)
    monkeypatch.setattr(packed, "_uses_fla", lambda _: True)
    out = _packed(lengths, tuple(leaves[1]))  # type: ignore[arg-type]
    assert_same(out, expected, torch.float32)
    for one in (expected, out):
        torch.autograd.backward(one.square().sum())
    for own, other in zip(*leaves, strict=True):
        assert_same(other.grad, own.grad, torch.float32)


@pytest.mark.parametrize("is_named", [False, True])
def test_the_package_is_used_where_it_is_named_and_refused_where_it_is_missing(
    is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would catch a measurement of which both sides are ours."""
    monkeypatch.setattr(switches, "_chosen", lambda: frozenset({"fla"}) if is_named else frozenset())
    on_gpu, on_cpu = (SimpleNamespace(device=torch.device(name), dtype=torch.bfloat16) for name in ("cuda", "cpu"))
    assert [packed._uses_fla(x) for x in (on_gpu, on_cpu)] == [is_named, False]  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "fla", None)
    with pytest.raises(InputError, match="names fla, and flash-linear-attention is not here"):
        packed._fla_rule.__wrapped__()
