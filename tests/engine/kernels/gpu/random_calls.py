"""Operations over Triton's kernels with random shapes, strides and sizes, and the plainest computation of the same."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.fused import RmsNorm, RotateHeads, SiluGate
from cookhouse.engine.kernels.softmax import log_sum_exp, logits_gradient
from tests.engine.kernels.gpu.paged_cases import TOLERANCES, Case, Inputs, make_inputs, reference, run
from tests.engine.numerics import ROUNDING, assert_same
from tests.engine.numerics import random as normal

_T = TypeVar("_T")


class Draw:
    """What one seed draws, for tensors of a dtype on a device."""

    def __init__(self, seed: int, dtype: torch.dtype, device: str) -> None:
        self.dtype, self.device = dtype, device
        self._random = random.Random(seed)

    def size(self, least: int, most: int) -> int:
        """Any from least to most; these, and sizes of whole tiles, more often than others."""
        tiles = [1 << power for power in range(14) if least <= 1 << power <= most]
        return self.one_of(self._random.randint(least, most), self.one_of(least, most, *tiles))

    def one_of(self, *choices: _T) -> _T:
        return self._random.choice(choices)

    def numbers(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Normal numbers that lie in memory in any way: whole, behind an odd address, with gaps, or one row for all."""
        x = normal(*shape, dtype=dtype or self.dtype, seed=self._random.getrandbits(32), device=self.device)
        if not shape:
            return x
        layout = self.one_of("whole", "offset", "transposed", "gaps", "repeated")
        if layout == "offset":
            x = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(shape)
        elif layout == "transposed":
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == "gaps":
            wide = x.new_full((*shape[:-1], 2 * shape[-1]), torch.nan)
            wide[..., ::2] = x
            x = wide[..., ::2]
        elif layout == "repeated" and shape[0]:
            x = x[:1].expand(shape)
        return x


def _check(draw: Draw, ours: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Values, and gradients given those of the result in any layout. Inputs keep theirs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    y, want = ours(*leaves), plain(*exact)
    assert y.shape == want.shape
    dy = draw.numbers(*y.shape)
    found = torch.autograd.grad(y, leaves, dy)
    wanted = torch.autograd.grad(want, exact, dy.double())
    for got, exactly in zip((y, *found), (want, *wanted), strict=True):
        if got.numel():
            assert_same(got, exactly, draw.dtype)


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.double()


def check_norm(draw: Draw) -> None:
    # Of two numbers or one a norm leaves nearly nothing to depend on: the gradient is what rounding makes it.
    size, eps = draw.size(3, 300), draw.one_of(1e-6, 1e-2)
    shape = [draw.size(0, 4) for _ in range(draw.size(0, 2))]
    weight = draw.numbers(size, dtype=draw.one_of(draw.dtype, torch.float32))

    def norm(x: Tensor) -> Tensor:
        y: Tensor = RmsNorm.apply(x, weight, eps, kernels_for(x))  # type: ignore[no-untyped-call]
        return y

    _check(draw, norm, lambda x: _normed(x, weight, eps), draw.numbers(*shape, size))


def check_heads(draw: Draw) -> None:
    rows, heads, dim = draw.size(0, 4), draw.size(1, 40), 2 * draw.size(2, 90)
    weight = draw.numbers(dim) if draw.one_of(True, False) else None
    cos, sin = (draw.numbers(rows, dim, dtype=draw.one_of(draw.dtype, torch.float32)) for _ in range(2))

    def rotate(x: Tensor) -> Tensor:
        y: Tensor = RotateHeads.apply(x, weight, 1e-6, cos, sin, kernels_for(x))  # type: ignore[no-untyped-call]
        return y

    def plain(x: Tensor) -> Tensor:
        x = x if weight is None else _normed(x, weight, 1e-6)
        first, second = x.chunk(2, -1)
        return x * cos.double().unsqueeze(1) + torch.cat((-second, first), -1) * sin.double().unsqueeze(1)

    _check(draw, rotate, plain, draw.numbers(rows, heads, dim))


def check_gate(draw: Draw) -> None:
    shape = [draw.size(0, 40) for _ in range(draw.size(0, 3))]

    def gate(x: Tensor, up: Tensor) -> Tensor:
        y: Tensor = SiluGate.apply(x, up, kernels_for(x))  # type: ignore[no-untyped-call]
        return y

    inputs = draw.numbers(*shape), draw.numbers(*shape)
    _check(draw, gate, lambda x, up: torch.nn.functional.silu(x) * up, *inputs)


def check_softmax(draw: Draw) -> None:
    rows, size, num_targets = draw.size(0, 5), draw.one_of(draw.size(1, 300), draw.size(8192, 9000)), draw.size(0, 8)
    logits_CV = 20 * draw.numbers(rows, size).contiguous()
    exact_CV = logits_CV.double().requires_grad_()
    torch.testing.assert_close(log_sum_exp(logits_CV), exact_CV.logsumexp(-1).detach(), rtol=0, atol=8 * ROUNDING)
    if not rows:
        num_targets = 0
    rows_M = torch.tensor(sorted(draw.size(0, rows - 1) for _ in range(num_targets)), dtype=torch.int64)
    tokens_M = torch.tensor([[draw.size(0, size - 1)] * 2 for _ in range(num_targets)], dtype=torch.int64).view(-1, 2)
    rows_M, tokens_M = rows_M.to(draw.device), tokens_M.to(draw.device)[:, 0]
    weights_M = draw.numbers(num_targets, dtype=torch.float32)
    loss = (torch.log_softmax(exact_CV, -1)[rows_M, tokens_M] * weights_M).sum()
    (want_CV,) = torch.autograd.grad(loss, exact_CV)
    got_CV = logits_gradient(logits_CV, rows_M, tokens_M, weights_M)
    if rows:
        assert_same(got_CV, want_CV, draw.dtype)


def check_attention(draw: Draw) -> None:
    queries = [draw.one_of(1, draw.size(1, 40)) for _ in range(draw.size(1, 3))]
    kv_heads = draw.size(1, 3)
    case = Case(
        pieces=[(count, count + draw.one_of(0, draw.size(0, 60), draw.size(0, 300))) for count in queries],
        heads=(kv_heads * draw.size(1, 5), kv_heads),
        dims=(draw.size(1, 40), draw.size(1, 40)),
        window=draw.one_of(None, 1, draw.size(2, 100)),
        has_sinks=draw.one_of(True, False),
        softcap=draw.one_of(None, 0.5, 20.0),
        dtype=draw.dtype,
        block_size=draw.one_of(1, 16, 24),
    )
    made = make_inputs(case, draw.device)
    inputs = Inputs(
        draw.numbers(*made.q_NHD.shape),
        made.keys,
        made.values,
        torch.nn.functional.pad(made.tables_SM, (0, draw.size(0, 9)), value=2**30),
        made.starts_S1,
        made.contexts_S,
        made.sinks_H,
    )
    out, tolerance = run(case, inputs), TOLERANCES[draw.dtype]
    torch.testing.assert_close(out.double(), reference(case, inputs), rtol=tolerance, atol=tolerance)


OPERATIONS: dict[str, tuple[Callable[[Draw], None], Sequence[str]]] = {
    "norm": (check_norm, ("norm_kernel", "norm_backward_kernel")),
    "heads": (check_heads, ("rotate_kernel", "rotate_backward_kernel")),
    "gate": (check_gate, ("gate_kernel", "gate_backward_kernel")),
    "softmax": (check_softmax, ("log_sum_exp_kernel", "softmax_backward_kernel")),
    "attention": (check_attention, ("decode_kernel", "combine_kernel", "read_kernel")),
}
"""What checks an operation, and the kernels that it starts."""
