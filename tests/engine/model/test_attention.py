"""Catches attention that looks across sequences, past its window, or differentiates wrongly."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.varlen import varlen_attn

from cookhouse.engine.device import deterministic
from cookhouse.engine.model.attention import PackedLayout, packed, varlen
from cookhouse.engine.model.attention.varlen import VarlenLengths, obstacle

H, K, D = 6, 2, 8


def _sequences(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: list[int],
    window: int | None,
    softcap: float | None = None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, slice]]:
    """Scores (H, T, T), keys and values (H, T, D), and rows of each sequence."""
    start = 0
    for length in lengths:
        rows = slice(start, start + length)
        start += length
        positions = torch.arange(length, device=q.device)
        distance = positions[:, None] - positions
        is_seen = (distance >= 0) & (distance < (window or length))
        keys, values = (t[rows].transpose(0, 1).repeat_interleave(H // K, 0) for t in (k, v))
        scores = q[rows].transpose(0, 1) @ keys.transpose(1, 2) * 0.3
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        yield scores.masked_fill(~is_seen, -torch.inf), keys, values, rows


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: list[int],
    window: int | None,
    sinks: torch.Tensor | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    outs = []
    for scores, _, values, _ in _sequences(q, k, v, lengths, window, softcap):
        length = scores.shape[1]
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(-1, length, 1)], -1)
        outs.append((scores.softmax(-1)[..., :length] @ values).transpose(0, 1))
    return torch.cat(outs)


@pytest.mark.parametrize("window", [None, 1, 5, 150])
@pytest.mark.parametrize("lengths", [[1], [4, 4], [130, 3, 110, 257, 104]])
def test_output_and_gradients_equal_plain_attention(lengths: list[int], window: int | None, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (torch.randn(sum(lengths), n, D, generator=generator).double().to(device) for n in (H, K, K, H))
    inputs = [t.requires_grad_() for t in (q, k, v)]
    expected = _reference(q, k, v, lengths, window)
    wanted = torch.autograd.grad(expected, inputs, dout)
    out = PackedLayout(lengths, q.device).attend(0, q, k, v, scaling=0.3, window=window)
    # The softmax is computed in fp32 whatever the inputs are.
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("softcap", [0.4, 30.0])
@pytest.mark.parametrize(("window", "has_sinks"), [(None, False), (150, True)])
def test_capped_scores_equal_plain_attention(
    window: int | None, has_sinks: bool, softcap: float, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches kernels that know no cap and are chosen, a mask that is capped as well, and a slope left out."""
    monkeypatch.setattr(varlen, "_is_built_for", lambda _: True)
    lengths = [130, 3, 110, 257]
    generator = torch.Generator().manual_seed(0)
    shapes = [(H, D), (K, D), (K, D), (H, D)]
    q, k, v, dout = (torch.randn(sum(lengths), *shape, generator=generator).to(device) for shape in shapes)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    sinks = torch.randn(H, generator=generator).to(device) if has_sinks else None
    layout = PackedLayout(lengths, q.device)
    out = layout.attend(0, q, k, v, scaling=0.3, window=window, sinks_H=sinks, softcap=softcap)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    sinks = None if sinks is None else sinks.double()
    expected = _reference(exact[0], exact[1], exact[2], lengths, window, sinks, softcap)
    wanted = torch.autograd.grad(expected, exact, dout.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 5])
def test_sinks_and_values_of_another_size_equal_plain_attention(window: int | None, device: str) -> None:
    lengths = [130, 3, 110, 257]
    generator = torch.Generator().manual_seed(0)
    shapes = [(H, D), (K, D), (K, D - 3)]
    inputs = [torch.randn(sum(lengths), *shape, generator=generator).double().to(device) for shape in shapes]
    inputs = [t.requires_grad_() for t in inputs]
    sinks = torch.randn(H, generator=generator).double().to(device)
    dout = torch.randn(sum(lengths), H, D - 3, generator=generator).double().to(device)
    q, k, v = inputs
    expected = _reference(q, k, v, lengths, window, sinks)
    wanted = torch.autograd.grad(expected, inputs, dout)
    layout = PackedLayout(lengths, q.device)
    out = layout.attend(0, q, k, v, scaling=0.3, window=window, sinks_H=sinks)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def _plain_varlen(accepts: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What `varlen_attn` means, by plain attention, for a call that it accepts."""
    call = inspect.signature(accepts).bind(*arguments, **options)
    call.apply_defaults()
    of = call.arguments
    lengths = of["cu_seq_q"].diff().tolist()
    assert of["cu_seq_q"].dtype == of["cu_seq_k"].dtype == torch.int32
    assert of["max_q"] == of["max_k"] == max(lengths)
    assert of["query"].shape[2] == of["key"].shape[2] == of["value"].shape[2]
    assert of.get("enable_gqa", True), "earlier versions of torch have no such argument"
    left, right = of["window_size"]
    assert right == 0
    assert of["scale"] == 0.3
    window = None if left == -1 else left + 1
    out = _reference(of["query"], of["key"], of["value"], lengths, window)
    if of["return_aux"] is None:
        return out
    logs_NH = [
        scores.logsumexp(-1).T for scores, *_ in _sequences(of["query"], of["key"], of["value"], lengths, window)
    ]
    return out, torch.cat(logs_NH).T


def _plain_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    logs_HN: torch.Tensor,
    lengths: VarlenLengths,
    scaling: float,
    window: int | None,
) -> list[torch.Tensor]:
    """What FlashAttention's backward computes from the output and the logarithms that it is given."""
    gradients = [torch.zeros_like(t) for t in (q, k, v)]
    for scores, keys, values, rows in _sequences(q, k, v, lengths.starts_S1.diff().tolist(), window):
        probs = (scores - logs_HN[:, rows, None]).exp()
        dout_HTD, out_HTD = (t[rows].transpose(0, 1) for t in (dout, out))
        through_total = (dout_HTD * out_HTD).sum(-1, keepdim=True)
        dscores = probs * (dout_HTD @ values.transpose(1, 2) - through_total) * scaling
        gradients[0][rows] = (dscores @ keys).transpose(0, 1)
        for gradient, per_head in (
            (gradients[1], dscores.transpose(1, 2) @ q[rows].transpose(0, 1)),
            (gradients[2], probs.transpose(1, 2) @ dout_HTD),
        ):
            gradient[rows] = per_head.view(K, H // K, *per_head.shape[1:]).sum(1).transpose(0, 1)
    return gradients


@pytest.fixture
def plain_varlen(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashAttention serves on a CPU, in plain operations."""
    monkeypatch.setattr(packed, "obstacle", lambda *_: None)
    monkeypatch.setattr(varlen, "varlen_attn", lambda *a, **options: _plain_varlen(varlen_attn, *a, **options))
    monkeypatch.setattr(varlen, "_backward", _plain_backward)


@pytest.mark.usefixtures("plain_varlen")
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize(("window", "value_dim"), [(None, D), (1, D), (5, D), (150, D), (None, D - 3)])
def test_flash_attention_is_asked_for_plain_attention(window: int | None, value_dim: int, has_sinks: bool) -> None:
    """Catches a window off by one, lengths or heads told wrongly, lost sinks, and gradients that stop on the way."""
    lengths = [130, 3, 110, 257, 104]
    generator = torch.Generator().manual_seed(0)
    shapes = ((H, D), (K, D), (K, value_dim), (H, value_dim))
    q, k, v, dout = (torch.randn(sum(lengths), *shape, generator=generator).double() for shape in shapes)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    sinks = torch.randn(H, generator=generator).double() if has_sinks else None
    expected = _reference(q, k, v, lengths, window, sinks)
    wanted = torch.autograd.grad(expected, inputs, dout)
    out = PackedLayout(lengths, q.device).attend(0, q, k, v, scaling=0.3, window=window, sinks_H=sinks)
    torch.testing.assert_close(out, expected)
    for got, want in zip(torch.autograd.grad(out, inputs, dout), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_flash_attention_takes_what_it_is_given() -> None:
    """Catches arguments in another order than torch's; tensors that only claim to be on a GPU show no more."""
    with FakeTensorMode(), torch.no_grad():
        q, k, v = (torch.empty(7, *shape, dtype=torch.bfloat16, device="cuda") for shape in ((H, 64), (K, 64), (K, 32)))
        lengths = VarlenLengths(torch.empty(3, dtype=torch.int32, device="cuda"), 4)
        for sinks in (None, torch.empty(H, dtype=torch.bfloat16, device="cuda")):
            out = varlen.varlen_attention(q, k, v, lengths, scaling=0.3, window=5, sinks_H=sinks)
            assert (out.shape, out.dtype) == ((7, H, 32), torch.bfloat16)
        gradients = varlen._backward(q, q, k, k, q, torch.empty(H, 7, device="cuda"), lengths, 0.3, 5)
        assert [t.shape for t in gradients] == [t.shape for t in (q, k, k)]


@pytest.mark.parametrize(
    ("dtype", "dims", "reason"),
    [
        (torch.bfloat16, (128, 128), None),
        (torch.float16, (256, 256), None),
        (torch.float32, (128, 128), "not in torch.float32"),
        (torch.bfloat16, (192, 128), None),
        (torch.bfloat16, (64, 128), "more features than keys, 128 and 64"),
        (torch.bfloat16, (264, 264), "not 264"),
        (torch.bfloat16, (20, 20), "not 20"),
    ],
)
def test_what_flash_attention_cannot_compute_is_named(
    dtype: torch.dtype, dims: tuple[int, int], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "_is_built_for", lambda _: True)
    with FakeTensorMode():
        q, v = (torch.empty(4, 2, dim, dtype=dtype, device="cuda") for dim in dims)
        found = obstacle(q, v)
        assert "no softcap" in str(obstacle(q, v, 30.0))
        monkeypatch.setattr(varlen, "_is_built_for", lambda _: False)
        assert obstacle(q, v) is not None
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


def test_flash_attention_is_for_a_gpu() -> None:
    q = torch.empty(4, 2, 128, dtype=torch.bfloat16)
    assert obstacle(q, q) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("heads", [(8, 8), (8, 2)])
def test_flash_attention_equals_plain_attention_and_repeats(
    heads: tuple[int, int], window: int | None, has_sinks: bool
) -> None:
    """Catches a version of torch whose windows mean something else, and gradients whose bits vary."""
    lengths = [300, 1, 17, 700]
    generator = torch.Generator().manual_seed(0)
    counts = (heads[0], heads[1], heads[1], heads[0])
    q, k, v, dout = (torch.randn(sum(lengths), n, 64, generator=generator).bfloat16().cuda() for n in counts)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    sinks = torch.randn(heads[0], generator=generator).bfloat16().cuda() if has_sinks else None
    assert obstacle(q, v) is None
    with deterministic():
        out = PackedLayout(lengths, q.device).attend(0, q, k, v, scaling=0.1, window=window, sinks_H=sinks)
        gradients = torch.autograd.grad(out, inputs, dout, retain_graph=True)
        for got, again in zip(gradients, torch.autograd.grad(out, inputs, dout), strict=True):
            assert torch.equal(got, again)
    exact = [t.detach().float().requires_grad_() for t in inputs]
    expected = PackedLayout(lengths, q.device).attend(0, *exact, scaling=0.1, window=window, sinks_H=sinks)
    torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)
    for got, want in zip(gradients, torch.autograd.grad(expected, exact, dout.float()), strict=True):
        torch.testing.assert_close(got.float(), want, rtol=5e-2, atol=5e-2)
