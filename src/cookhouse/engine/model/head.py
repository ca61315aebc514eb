"""Log-probabilities of target tokens from hidden states, in chunks: the logits of a pass all exist at once only where a
GPU has room for them, which then need not be computed again for the gradient.

Legend: N packed positions, M targets (several may share a position), B positions whose logits are wanted, C positions
of a chunk, H hidden, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cookhouse.engine.kernels.products import can_widen, matmul, wide_linear
from cookhouse.engine.kernels.rows import rows_kernels
from cookhouse.engine.kernels.softmax import log_sum_exp, logits_gradient
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.lora import Adapters, LoraLinear, Segment, Segments, SiteAdapters, SiteProduct
from cookhouse.engine.memory import free_bytes, total_bytes
from cookhouse.engine.model.logits import PLAIN, LogitRule

_CPU_BYTES = 2**25 - 2**12
_GPU_BYTES = 2**30
"""Bound on one chunk's fp32 logits: few, so that they stay near a CPU's caches, and in its heap, which hands back what
has 32 MiB or more (see `engine.heap`); many, so that they fill a GPU."""
_FREE_SHARE = 8
"""Part of a GPU's free memory that a chunk's fp32 logits may take: more than they is held besides them."""
_KEPT_SHARE = 1 / 16
"""Of a GPU's memory, for the logits of a training pass between forward and backward."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Tokens asked about: `tokens_M[i]` at packed position `rows_M[i]`. Rows never decrease, and are on the host."""

    rows_M: Tensor
    tokens_M: Tensor


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some positions with their adapters, and the targets there."""

    rows_C: Tensor
    """Ascending, each once."""
    adapters: Adapters
    targets: slice
    local_M: Tensor
    """Which of the rows each target is at."""
    tokens_M: Tensor


@dataclass(frozen=True, slots=True)
class ChunkLogits:
    """Logits of a chunk, and what its backward needs."""

    chunk: _Chunk
    hidden_CH: Tensor
    adapters: SiteProduct | None
    lows: Sequence[Tensor]
    """See `SiteProduct.apply`."""
    logits_CV: Tensor


class Head:
    """The output projection of a base model with its adapters, and what makes logits of its products."""

    def __init__(self, projection: nn.Module, name: str, rule: LogitRule = PLAIN) -> None:
        assert isinstance(projection, LoraLinear | nn.Linear)
        self.projection = projection
        self.name = name
        self.rule = rule
        self._weight_VH = projection.weight
        self._bias_V = projection.bias

    @property
    def vocab_size(self) -> int:
        """Rows of the projection: tokens that can be asked about."""
        return self._weight_VH.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the projection."""
        return self._weight_VH.dtype

    @property
    def logits_dtype(self) -> torch.dtype:
        """Precision of logits on a GPU."""
        return torch.float32 if can_widen(self._weight_VH) else self.dtype

    def logits(self, hidden_CH: Tensor, adapters: Sequence[Segment] | Adapters) -> Tensor:
        """Logits (C, V), in fp32 on a CPU, else in `logits_dtype`; adapters are those of the rows of `hidden_CH`."""
        return self._apply(hidden_CH, _adapters(adapters).at(self.name))[0]

    def _apply(self, hidden_CH: Tensor, adapters: SiteProduct | None) -> tuple[Tensor, list[Tensor]]:
        if isinstance(adapters, SiteAdapters) and rows_kernels(hidden_CH, self._weight_VH) is not None:
            logits_CV, lows = adapters.linear(hidden_CH, self._weight_VH, self._bias_V, is_wide=True)
        else:
            logits_CV = wide_linear(hidden_CH, self._weight_VH, self._bias_V)
            lows = [] if adapters is None else adapters.apply(hidden_CH, logits_CV)
        self.rule.apply_(logits_CV)
        return logits_CV, lows

    def can_keep(self, targets: Targets, max_bytes: int | None) -> bool:
        """True if a GPU has room for the logits of a pass, of all its memory, whatever is free: those that are computed
        again, in other chunks, may be rounded differently, and passes are the same each time, to the bit.

        `max_bytes`: what the pass may keep at most, if it was given.
        """
        device = self._weight_VH.device
        if device.type != "cuda":
            return False
        num_rows = len(torch.unique_consecutive(targets.rows_M))
        num_bytes = num_rows * self.vocab_size * self.logits_dtype.itemsize
        return num_bytes <= total_bytes(device) * _KEPT_SHARE and (max_bytes is None or num_bytes <= max_bytes)

    @torch.no_grad()
    def logprobs(
        self,
        hidden_NH: Tensor,
        targets: Targets,
        adapters: Sequence[Segment] | Adapters,
        kept: list[ChunkLogits] | None = None,
    ) -> Tensor:
        """Log-probability (M,) of each target in nats, fp32, temperature 1. Not differentiable: see `backward`, for
        which `kept` receives the logits.
        """
        parts = []
        for chunk in self._chunks(targets, _adapters(adapters)):
            computed = self._compute(hidden_NH, chunk)
            chosen_M = computed.logits_CV[chunk.local_M, chunk.tokens_M].double()
            parts.append((chosen_M - log_sum_exp(computed.logits_CV)[chunk.local_M]).float())
            if kept is not None:
                kept.append(computed)
        return torch.cat(parts)

    def rows(self, hidden_NH: Tensor, rows_B: Tensor, adapters: Sequence[Segment] | Adapters) -> Tensor:
        """Logits (B, V) in fp32 at ascending packed rows, which are on the host."""
        chosen_BH = hidden_NH[upload(rows_B.numpy(), hidden_NH.device)]
        return self.logits(chosen_BH, _adapters(adapters).at_rows(rows_B)).float()

    def topk_logprobs(
        self, hidden_NH: Tensor, rows_C: Tensor, k: int, adapters: Sequence[Segment] | Adapters
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities (C, k) in nats and tokens (C, k), most likely first, at ascending packed rows, which are on
        the host.
        """
        ranked, tokens = [], []
        nothing = torch.zeros(len(rows_C), dtype=torch.int64, device=hidden_NH.device)
        for chunk in self._chunks(Targets(rows_C, nothing), _adapters(adapters)):
            logprobs_CV = torch.log_softmax(self.logits(hidden_NH[chunk.rows_C], chunk.adapters).float(), -1)
            top = torch.topk(logprobs_CV, k)
            ranked.append(top.values)
            tokens.append(top.indices)
        return torch.cat(ranked), torch.cat(tokens)

    @torch.no_grad()
    def backward(
        self,
        hidden_NH: Tensor,
        targets: Targets,
        dlogprobs_M: Tensor,
        adapters: Sequence[Segment] | Adapters,
        kept: list[ChunkLogits] | None = None,
    ) -> Tensor:
        """Gradient (N, H) of hidden states given that of the targets' log-probabilities; adapter gradients are added,
        and those of the projection itself where it is trained.

        Logits that were `kept` make place for their gradient, and leave the list. Without them, and where most targets
        have a gradient of zero, logits are computed again for the others.
        """
        dhidden_NH = torch.zeros_like(hidden_NH)
        used_M = (dlogprobs_M != 0).cpu().nonzero().squeeze(1)
        if kept and 2 * len(used_M) < len(dlogprobs_M):
            kept.clear()
        if kept:
            parts = (kept.pop(0) for _ in range(len(kept)))
        else:
            there_M = upload(used_M.numpy(), hidden_NH.device)
            used = Targets(targets.rows_M[used_M], targets.tokens_M[there_M])
            dlogprobs_M = dlogprobs_M[there_M]
            parts = (self._compute(hidden_NH, chunk) for chunk in self._chunks(used, _adapters(adapters)))
        for part in parts:
            dhidden_NH[part.chunk.rows_C] = self._backward_chunk(part, dlogprobs_M[part.chunk.targets])
        return dhidden_NH

    def _compute(self, hidden_NH: Tensor, chunk: _Chunk) -> ChunkLogits:
        hidden_CH = hidden_NH[chunk.rows_C]
        product = chunk.adapters.at(self.name)
        logits_CV, lows = self._apply(hidden_CH, product)
        return ChunkLogits(chunk, hidden_CH, product, lows, logits_CV)

    def _backward_chunk(self, part: ChunkLogits, dlogprobs_M: Tensor) -> Tensor:
        slope = self.rule.slope(part.logits_CV)  # before their gradient takes the logits' place
        dlogits_CV = logits_gradient(part.logits_CV, part.chunk.local_M, part.chunk.tokens_M, dlogprobs_M)
        if not isinstance(slope, float) or slope != 1.0:
            dlogits_CV.mul_(slope)
        dlogits_CV = dlogits_CV.to(self.dtype)
        dhidden_CH = matmul(dlogits_CV, self._weight_VH)
        if self._weight_VH.requires_grad:
            torch.autograd.backward(self._weight_VH, matmul(dlogits_CV.T, part.hidden_CH))
            if self._bias_V is not None:
                torch.autograd.backward(self._bias_V, dlogits_CV.sum(0))
        if part.adapters is not None:
            part.adapters.backward(part.hidden_CH, part.lows, dlogits_CV, dhidden_CH)
        return dhidden_CH

    def _chunks(self, targets: Targets, adapters: Adapters) -> Iterator[_Chunk]:
        device = self._weight_VH.device
        rows_C, local_M, counts_C = torch.unique_consecutive(targets.rows_M, return_inverse=True, return_counts=True)
        ends = [0, *counts_C.cumsum(0).tolist()]
        there_C, local_M = upload(rows_C.numpy(), device), upload(local_M.numpy(), device)
        size = max(1, _chunk_bytes(device) // (4 * self.vocab_size))
        for start in range(0, len(rows_C), size):
            stop = min(start + size, len(rows_C))
            span = slice(ends[start], ends[stop])
            yield _Chunk(
                there_C[start:stop],
                adapters.at_rows(rows_C[start:stop]),
                span,
                local_M[span] - start,
                targets.tokens_M[span],
            )


def _adapters(adapters: Sequence[Segment] | Adapters) -> Adapters:
    return Segments(adapters) if isinstance(adapters, Sequence) else adapters


def _chunk_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return _CPU_BYTES
    most = free_bytes(device) // _FREE_SHARE
    # Halved rather than cut to what is free: rounding depends on a chunk's size, and should not on the day's memory.
    return max(_GPU_BYTES >> halvings for halvings in range(5) if _GPU_BYTES >> halvings <= most or halvings == 4)
