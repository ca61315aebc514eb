"""Log-probabilities of target tokens from hidden states, in chunks: the logits of a pass never all exist at once.

Legend: N packed positions, M targets (several may share a position), C positions of a chunk, H hidden, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cookhouse.engine.lora import LoraLinear, Segment, SiteAdapters
from cookhouse.engine.softmax import log_sum_exp, logits_gradient

_CHUNK_BYTES = 64 * 2**20
"""Bound on one chunk's fp32 logits."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Tokens asked about: `tokens_M[i]` at packed position `rows_M[i]`. Rows never decrease."""

    rows_M: Tensor
    tokens_M: Tensor


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Positions `rows_C` (ascending, each once), their adapter segments, and the targets [first, last) at them."""

    rows_C: Tensor
    segments: tuple[Segment, ...]
    first: int
    last: int


class Head:
    """The output projection of a base model with its adapters."""

    def __init__(self, projection: nn.Module, name: str) -> None:
        assert isinstance(projection, LoraLinear | nn.Linear)
        self.projection = projection
        self.name = name
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

    def logits(self, hidden_CH: Tensor, segments: Sequence[Segment]) -> Tensor:
        """Logits (C, V) in the precision of the projection; segments index the rows of `hidden_CH`."""
        return self._apply(hidden_CH, self._adapters(segments))[0]

    def _apply(self, hidden_CH: Tensor, adapters: SiteAdapters) -> tuple[Tensor, list[Tensor]]:
        logits_CV = nn.functional.linear(hidden_CH, self._weight_VH, self._bias_V)
        return logits_CV, adapters.apply(hidden_CH, logits_CV)

    def _adapters(self, segments: Sequence[Segment]) -> SiteAdapters:
        return SiteAdapters(self.name, [segment for segment in segments if self.name in segment.weights.views])

    @torch.no_grad()
    def logprobs(self, hidden_NH: Tensor, targets: Targets, segments: Sequence[Segment]) -> Tensor:
        """Log-probability (M,) of each target in nats, fp32, temperature 1. Not differentiable: see `backward`."""
        parts = []
        for chunk in self._chunks(targets, segments):
            logits_CV = self.logits(hidden_NH[chunk.rows_C], chunk.segments)
            local_M, tokens_M = _local_targets(chunk, targets)
            parts.append((logits_CV[local_M, tokens_M].double() - log_sum_exp(logits_CV)[local_M]).float())
        return torch.cat(parts)

    def rows(self, hidden_NH: Tensor, rows_B: Tensor, segments: Sequence[Segment]) -> Tensor:
        """Logits (B, V) in fp32 at ascending packed rows."""
        return self.logits(hidden_NH[rows_B], _clip(segments, rows_B)).float()

    def topk_logprobs(
        self, hidden_NH: Tensor, rows_C: Tensor, k: int, segments: Sequence[Segment]
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities (C, k) in nats and tokens (C, k), most likely first, at ascending packed rows."""
        ranked, tokens = [], []
        for chunk in self._chunks(Targets(rows_C, torch.zeros_like(rows_C)), segments):
            logprobs_CV = torch.log_softmax(self.logits(hidden_NH[chunk.rows_C], chunk.segments).float(), -1)
            top = torch.topk(logprobs_CV, k)
            ranked.append(top.values)
            tokens.append(top.indices)
        return torch.cat(ranked), torch.cat(tokens)

    @torch.no_grad()
    def backward(self, hidden_NH: Tensor, targets: Targets, dlogprobs_M: Tensor, segments: Sequence[Segment]) -> Tensor:
        """Gradient (N, H) of hidden states given that of the targets' log-probabilities; adapter gradients are added,
        and those of the projection itself where it is trained.

        Logits are computed again, and only at positions where some gradient is not zero.
        """
        dhidden_NH = torch.zeros_like(hidden_NH)
        is_used_M = dlogprobs_M != 0
        used = Targets(targets.rows_M[is_used_M], targets.tokens_M[is_used_M])
        dlogprobs_M = dlogprobs_M[is_used_M]
        for chunk in self._chunks(used, segments):
            hidden_CH = hidden_NH[chunk.rows_C]
            adapters = self._adapters(chunk.segments)
            logits_CV, lows = self._apply(hidden_CH, adapters)
            local_M, tokens_M = _local_targets(chunk, used)
            dlogits_CV = logits_gradient(logits_CV, local_M, tokens_M, dlogprobs_M[chunk.first : chunk.last])
            dhidden_CH = dlogits_CV @ self._weight_VH
            if self._weight_VH.requires_grad:
                torch.autograd.backward(self._weight_VH, dlogits_CV.T @ hidden_CH)
                if self._bias_V is not None:
                    torch.autograd.backward(self._bias_V, dlogits_CV.sum(0))
            adapters.backward(hidden_CH, lows, dlogits_CV, dhidden_CH)
            dhidden_NH[chunk.rows_C] = dhidden_CH
        return dhidden_NH

    def _chunks(self, targets: Targets, segments: Sequence[Segment]) -> Iterator[_Chunk]:
        rows_C, counts_C = torch.unique_consecutive(targets.rows_M, return_counts=True)
        ends_C = counts_C.cumsum(0)
        size = max(1, _CHUNK_BYTES // (4 * self._weight_VH.shape[0]))
        for start in range(0, len(rows_C), size):
            part_C = rows_C[start : start + size]
            first = int(ends_C[start - 1]) if start else 0
            yield _Chunk(part_C, _clip(segments, part_C), first, int(ends_C[start + len(part_C) - 1]))


def _clip(segments: Sequence[Segment], rows_C: Tensor) -> tuple[Segment, ...]:
    """The segments that some of the ascending rows lie in, as ranges of indices into the rows."""
    clipped = []
    for segment in segments:
        bounds = torch.tensor([segment.start, segment.stop], device=rows_C.device)
        start, stop = torch.searchsorted(rows_C, bounds).tolist()
        if start < stop:
            clipped.append(replace(segment, start=start, stop=stop))
    return tuple(clipped)


def _local_targets(chunk: _Chunk, targets: Targets) -> tuple[Tensor, Tensor]:
    """Row within the chunk, and token, of each of its targets."""
    rows_M = targets.rows_M[chunk.first : chunk.last]
    return torch.searchsorted(chunk.rows_C, rows_M), targets.tokens_M[chunk.first : chunk.last]
