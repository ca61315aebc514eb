"""Low-rank adapters: where they attach, how one lies in memory, and the linear layer that applies them.

Legend: N packed positions, C some of them, I features in, O features out, R rank, E experts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import Array, addressof
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cookhouse.engine.contract import LoraSpec
from cookhouse.engine.kernels.choice import kernels_for
from cookhouse.engine.kernels.cpu import LANES, LoraSegment
from cookhouse.engine.kernels.products import linear, matmul, wide_matmul
from cookhouse.engine.kernels.rows import rows_kernels, rows_linear
from cookhouse.engine.kernels.tiled import TiledProduct, tiles_for
from cookhouse.models.base_files import BaseFiles

ALPHA = 32.0
"""Not on the wire. Scaling ALPHA / rank keeps the best learning rate the same at every rank
(https://thinkingmachines.ai/blog/lora/)."""
_KERNEL_PRODUCTS = 5_000_000
"""Multiplications (rows · rank · features in and out) up to which a segment goes through the kernels. At a fifth of
that they are 1.4 × as fast as torch in fp32 and 2 × in bf16, where a product costs 25 µs however small it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSite:
    """A linear layer that can carry an adapter, or one projection of all experts of a mixture layer."""

    name: str
    """Path in the `transformers` model: `model.layers.0.self_attn.q_proj`, `model.layers.0.mlp.experts.up_proj`."""
    part: str
    """`attn`, `mlp` or `unembed`."""
    in_features: int
    out_features: int
    num_experts: int | None = None
    """Matrices of these features, one per expert; None for a plain layer."""
    shared: str = ""
    """Of experts: `A` or `B`, the matrix of the adapter that all of them share; empty: each has both of its own."""
    parameter: str = ""
    """Name of the frozen parameter, if it is not the module's `weight`."""
    rows: slice = field(default_factory=lambda: slice(None), hash=False)
    """Which features out of that parameter are this site's: experts keep gate and up projections as one."""
    is_transposed: bool = False
    """Whether that parameter is (…, I, O)."""

    @property
    def num_features(self) -> int:
        """Features in and out, summed over the experts; of a shared matrix once."""
        num_a, num_b = self.num_matrices
        return num_a * self.in_features + num_b * self.out_features

    @property
    def num_matrices(self) -> tuple[int, int]:
        """Numbers of A and of B."""
        number = self.num_experts or 1
        return 1 if self.shared == "A" else number, 1 if self.shared == "B" else number

    def expand(self, matrices: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """A and B with one matrix per expert, (E, …), where they are shared; views."""
        if self.num_experts is None:
            return matrices
        a, b = (matrix.expand(self.num_experts, -1, -1) for matrix in matrices)
        return a, b

    @property
    def parameter_name(self) -> str:
        """Name of the frozen parameter."""
        return self.parameter or f"{self.name}.weight"

    def select(self, parameter: Tensor) -> Tensor:
        """The matrices of this site, (O, I) or (E, O, I), as a view of the frozen parameter."""
        weight = parameter.mT if self.is_transposed else parameter
        return weight[..., self.rows, :]


@dataclass(frozen=True)
class AdapterLayout:
    """Layout of each site's matrices in an adapter's flat tensor, site after site: A (R, I) then B (O, R), and for
    experts A (E, R, I) then B (E, O, R), of which the shared one is (1, …).
    """

    sites: tuple[LoraSite, ...]
    spec: LoraSpec
    base_files: BaseFiles = field(default_factory=dict, compare=False)
    """Of the base model, whose weights the adapter is added to; empty: they are not known."""

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """First element of each site, by name."""
        starts, total = {}, 0
        for site in self.sites:
            starts[site.name] = total
            total += self.spec.rank * site.num_features
        return starts

    @cached_property
    def num_parameters(self) -> int:
        """Rank times the sum of features in and out over the sites."""
        return self.spec.rank * sum(site.num_features for site in self.sites)

    def sharing(self, shared: Sequence[str]) -> "AdapterLayout":
        """The same, but for what experts share, site after site."""
        sites = [replace(site, shared=one) for site, one in zip(self.sites, shared, strict=True)]
        return replace(self, sites=tuple(sites))

    @property
    def scaling(self) -> float:
        """Factor of B A x."""
        return ALPHA / self.spec.rank

    def views(self, flat: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """The (A, B) matrices of each site as views of a flat tensor of `num_parameters` elements."""
        rank, out = self.spec.rank, {}
        for site in self.sites:
            num_a, num_b = ((), ()) if site.num_experts is None else ((number,) for number in site.num_matrices)
            shapes = (*num_a, rank, site.in_features), (*num_b, site.out_features, rank)
            start = self.offsets[site.name]
            middle = start + math.prod(shapes[0])
            end = middle + math.prod(shapes[1])
            out[site.name] = flat[start:middle].view(shapes[0]), flat[middle:end].view(shapes[1])
        return out

    def initial(self, device: torch.device) -> Tensor:
        """A uniform in ±1/√I as `nn.Linear` does, B zero: the base model's output is unchanged. Seeded per adapter."""
        generator = torch.Generator().manual_seed(self.spec.seed % 2**63)
        flat = torch.zeros(self.num_parameters)
        for a, _ in self.views(flat).values():
            bound = 1.0 / math.sqrt(a.shape[-1])
            a.uniform_(-bound, bound, generator=generator)
        return flat.to(device)


@dataclass(frozen=True, eq=False)
class Weights:
    """One immutable set of adapter weights in the precision of computation, with its views."""

    layout: AdapterLayout
    flat: Tensor
    serial: int = field(default_factory=count(1).__next__, init=False)
    """Differs from that of any other weights of this process, past ones included, as `id` would not."""

    @cached_property
    def views(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """The (A, B) matrices of each site."""
        return self.layout.views(self.flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Packed positions [start, stop) that go through one adapter; `gradient` receives what backward finds."""

    start: int
    stop: int
    weights: Weights
    gradient: Mapping[str, tuple[Tensor, Tensor]] | None = None


class SiteProduct(Protocol):
    """The adapters of one site over the rows of a pass."""

    def apply(self, x_NI: Tensor, y_NO: Tensor) -> list[Tensor]:
        """Add scaling · B A x to `y_NO`, each row by its adapter; return what backward needs of A x."""

    def backward(self, x_NI: Tensor, lows: Sequence[Tensor], dy_NO: Tensor, dx_NI: Tensor | None) -> None:
        """Add the adapters' gradients, and their share of dx in place."""


class Adapters(Protocol):
    """Assignment of each row of a pass to an adapter."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Segments from which the pass was laid out."""

    def at(self, name: str) -> SiteProduct | None:
        """The adapters of a site; None where it has none."""

    def at_rows(self, rows_C: Tensor) -> "Adapters":
        """Adapters of some rows alone, ascending and on the host; segments then count from the first of them."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Adapters that are applied one segment after the other."""

    segments: Sequence[Segment] = ()

    def at(self, name: str) -> "SiteAdapters | None":
        """See `Adapters`."""
        covering = [segment for segment in self.segments if name in segment.weights.views]
        return SiteAdapters(name, covering) if covering else None

    def at_rows(self, rows_C: Tensor) -> "Segments":
        """See `Adapters`."""
        clipped = []
        for segment in self.segments:
            bounds = torch.tensor([segment.start, segment.stop])
            start, stop = torch.searchsorted(rows_C, bounds).tolist()
            if start < stop:
                clipped.append(replace(segment, start=start, stop=stop))
        return Segments(clipped)


@dataclass
class Routing:
    """Holder of the adapters of the pass that is running.

    One object per base model, held by its adapted layers: `transformers` hands a linear layer nothing but its input.
    """

    is_grouped: bool = False
    """Whether products over experts, and those of many adapters, are grouped: where `can_group` says so."""
    adapters: Adapters = Segments()

    @contextmanager
    def use(self, adapters: Adapters) -> Iterator[None]:
        """Route one pass, forward and backward."""
        self.adapters = adapters
        try:
            yield
        finally:
            self.adapters = Segments()


class LoraLinear(nn.Module):
    """A frozen linear layer plus the adapters that its routing names: y = W x + b + scaling · B A x."""

    def __init__(self, base: nn.Linear, site: LoraSite, routing: Routing) -> None:
        super().__init__()
        self.weight = base.weight
        self.bias = base.bias
        self.in_features, self.out_features = base.in_features, base.out_features
        self._site = site
        self._routing = routing

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, I) to (…, O); the leading dimensions together are the packed positions."""
        y_NO = self._product(x.reshape(-1, self.in_features), self._routing.adapters.at(self._site.name))
        return y_NO.view(*x.shape[:-1], self.out_features)

    def _product(self, x_NI: Tensor, adapters: SiteProduct | None) -> Tensor:
        if adapters is None:
            return linear(x_NI, self.weight, self.bias)
        arguments = x_NI, self.weight, self.bias, adapters
        kernels = tiles_for(x_NI, self.weight) if isinstance(adapters, SiteAdapters) else None
        y_NO: Tensor = (
            _LoraProduct.apply(*arguments) if kernels is None else TiledProduct.apply(*arguments, kernels)  # type: ignore[no-untyped-call]
        )
        return y_NO


class _LoraProduct(torch.autograd.Function):
    """Adapted product whose backward adds straight into flat gradients: no parameter tensor enters the graph."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, adapters: SiteProduct) -> Tensor:
        x_NI = x_NI.contiguous()
        if isinstance(adapters, SiteAdapters) and rows_kernels(x_NI, weight_OI) is not None:
            y_NO, lows = adapters.linear(x_NI, weight_OI, bias_O)
        else:
            y_NO = linear(x_NI, weight_OI, bias_O)
            lows = adapters.apply(x_NI, y_NO)
        ctx.adapters = adapters
        ctx.save_for_backward(x_NI, weight_OI, *lows)
        return y_NO

    @staticmethod
    def backward(ctx: Any, dy_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI, *lows = ctx.saved_tensors
        dy_NO = dy_NO.contiguous()
        dx_NI = matmul(dy_NO, weight_OI) if ctx.needs_input_grad[0] else None
        ctx.adapters.backward(x_NI, lows, dy_NO, dx_NI)
        return dx_NI, None, None, None


class SiteAdapters:
    """The adapters of one site, one segment of the packed positions after the other. Tensors are contiguous.

    Short segments go through the CPU kernels together, where there are any.
    """

    def __init__(self, name: str, segments: Sequence[Segment]) -> None:
        self._name = name
        self._segments = segments

    def apply(self, x_NI: Tensor, y_NO: Tensor) -> list[Tensor]:
        """Add scaling · B A x of each segment to its rows of `y_NO`; return what backward needs of A x."""
        short, long = self._parts(x_NI, y_NO.shape[1])
        lows: list[Tensor] = []
        for segment in long:
            a_RI, b_OR = segment.weights.views[self._name]
            low_NR = linear(x_NI[segment.start : segment.stop], a_RI)
            add_product(y_NO[segment.start : segment.stop], low_NR, b_OR.T, segment.weights.layout.scaling)
            lows.append(low_NR)
        if short:
            widest = max(segment.weights.layout.spec.rank for segment in short)
            lows.append(x_NI.new_empty(x_NI.shape[0], -(-widest // LANES) * LANES, dtype=torch.float32))
            self._call("lora", short, x_NI, lows[-1], y_NO)
        return lows

    def linear(
        self, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, *, is_wide: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """W x + b and the adapters, where there are `rows_kernels`, rounded once or `is_wide` in fp32; and what
        backward needs of A x.
        """
        kernels = rows_kernels(x_NI, weight_OI)
        assert kernels is not None
        y_NO, low_NR = rows_linear(kernels, x_NI, weight_OI, bias_O, self.table(), is_wide=is_wide)
        short, long = self._parts(x_NI, y_NO.shape[1])
        lows = [
            low_NR[segment.start : segment.stop, : segment.weights.layout.spec.rank].to(x_NI.dtype) for segment in long
        ]
        return y_NO, [*lows, low_NR] if short else lows

    def backward(self, x_NI: Tensor, lows: Sequence[Tensor], dy_NO: Tensor, dx_NI: Tensor | None) -> None:
        """Add the adapters' gradients, and their share of dx in place; gradients are fp32."""
        short, long = self._parts(x_NI, dy_NO.shape[1])
        for segment, low_NR in zip(long, lows, strict=False):
            rows = slice(segment.start, segment.stop)
            dx = None if dx_NI is None else dx_NI[rows]
            gradient = None if segment.gradient is None else segment.gradient[self._name]
            matrices, scaling = segment.weights.views[self._name], segment.weights.layout.scaling
            backward_matrices(matrices, scaling, gradient, x_NI[rows], low_NR, dy_NO[rows], dx)
        if short:
            self._call("lora_backward", short, x_NI, lows[-1], dy_NO, dx_NI)

    def _parts(self, x_NI: Tensor, num_out: int) -> tuple[list[Segment], list[Segment]]:
        if kernels_for(x_NI, "lora", "lora_backward") is None:
            return [], list(self._segments)
        num_features = x_NI.shape[1] + num_out
        short: list[Segment] = []
        long: list[Segment] = []
        for segment in self._segments:
            products = (segment.stop - segment.start) * segment.weights.layout.spec.rank * num_features
            (short if products <= _KERNEL_PRODUCTS else long).append(segment)
        return short, long

    def _call(
        self, function: str, segments: Sequence[Segment], x_NI: Tensor, low_NR: Tensor, y_NO: Tensor, *more: Any
    ) -> None:
        kernels = kernels_for(x_NI)
        assert kernels is not None
        table = self.table(segments)
        sizes = (x_NI, x_NI.shape[1], y_NO, y_NO.shape[1], low_NR, low_NR.shape[1])
        kernels(function, x_NI.dtype, addressof(table), len(segments), *sizes, *more)

    def table(self, segments: Sequence[Segment] | None = None) -> Array[LoraSegment]:
        """Segments, all unless some are named, as the kernels take them."""
        entries = [self._entry(segment) for segment in (self._segments if segments is None else segments)]
        return (LoraSegment * len(entries))(*entries)

    def _entry(self, segment: Segment) -> LoraSegment:
        a_RI, b_OR = segment.weights.views[self._name]
        gradients = (None, None) if segment.gradient is None else (g.data_ptr() for g in segment.gradient[self._name])
        layout = segment.weights.layout
        pointers = (a_RI.data_ptr(), b_OR.data_ptr(), *gradients)
        return LoraSegment(segment.start, segment.stop, layout.spec.rank, *pointers, layout.scaling)


def backward_matrices(
    matrices: tuple[Tensor, Tensor],
    scaling: float,
    gradient: tuple[Tensor, Tensor] | None,
    x_NI: Tensor,
    low_NR: Tensor,
    dy_NO: Tensor,
    dx_NI: Tensor | None,
) -> None:
    """Add the gradients of one A (R, I) and B (O, R), and their share of dx in place. `low_NR` is A x."""
    a_RI, b_OR = matrices
    dlow_NR = matmul(dy_NO, b_OR).mul_(scaling)
    if dx_NI is not None:
        dx_NI.addmm_(dlow_NR, a_RI)
    if gradient is not None:
        da_RI, db_OR = gradient
        da_RI.add_(wide_matmul(dlow_NR.T, x_NI))
        db_OR.add_(wide_matmul(dy_NO.T, low_NR), alpha=scaling)


def add_product(total_NO: Tensor, x_NI: Tensor, matrix_IO: Tensor, factor: float = 1.0) -> None:
    """Add factor · X M in place. The total may be wider than the rest, as logits are."""
    if total_NO.dtype == x_NI.dtype:
        total_NO.addmm_(x_NI, matrix_IO, alpha=factor)
    else:
        total_NO.add_(wide_matmul(x_NI, matrix_IO), alpha=factor)
