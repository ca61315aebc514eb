"""Forward and backward over packed datums of one or several adapters.

Legend: N packed positions of a pass, M targets of a pass, A those that are asked for, D datums, T positions of a datum,
H hidden.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cookhouse.engine.contract import ForwardBackward, ForwardBackwardOutput, TrainingDatum
from cookhouse.engine.device import deterministic
from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.lora.adapter import Adapter
from cookhouse.engine.lora.lora import Segment, Weights
from cookhouse.engine.model.base_model import BaseModel
from cookhouse.engine.model.head import ChunkLogits, Targets
from cookhouse.engine.train.losses import LOSSES, loss_inputs
from cookhouse.engine.train.pairs import TOKEN_LOGPROBS
from cookhouse.engine.train.placing import Placed, groups_of, pack, place
from cookhouse.errors import InputError


@dataclass(frozen=True, slots=True)
class _Item:
    """One datum of one request."""

    request: int
    datum: int
    is_joined: bool
    """Whether it may begin with positions of the datum before it, which is in the same pass then."""


class _Job:
    """A request under way: its weights, a gradient of its own until it has succeeded, and what it returns."""

    def __init__(self, request: ForwardBackward, adapter: Adapter, dtype: torch.dtype) -> None:
        self.request = request
        self.adapter = adapter
        self.weights: Weights = adapter.weights(dtype)
        self.gradient = None if request.forward_only else torch.zeros_like(adapter.gradient)
        self.gradient_views: Mapping[str, tuple[Tensor, Tensor]] | None = (
            None if self.gradient is None else adapter.layout.views(self.gradient)
        )
        self.logprobs_D: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(request.data_D)
        self.loss = 0.0
        self._bad: str | None = None
        self._slopes: list[tuple[Sequence[int], Tensor]] = []
        self._wants_tokens = bool(float(request.loss_fn_config.get(TOKEN_LOGPROBS, 0.0)))

    def keep(
        self, members: Sequence[_Item], shapes: Sequence[tuple[int, ...]], flat: NDArray[np.float32], loss: float
    ) -> None:
        """Store the outputs of its datums in one pass."""
        self.loss += loss
        start = 0
        is_summed = LOSSES[self.request.loss_fn].group_datums > 1
        for item, shape in zip(members, shapes, strict=True):
            logprobs = flat[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
            if is_summed:
                weights_T = self.request.data_D[item.datum].loss_fn_inputs["weights"]
                of_tokens = logprobs[weights_T != 0] if self._wants_tokens else logprobs[:0]
                logprobs = np.concatenate([_summed(logprobs, weights_T), of_tokens])
            self.logprobs_D[item.datum] = logprobs

    def watch(self, members: Sequence[_Item], losses: Tensor, loss: float) -> None:
        """Note where the first loss stands that is not finite, if the sum `loss` of its datums in one pass is not."""
        if self._bad is None and not math.isfinite(loss):
            self._bad = self._place([item.datum for item in members], losses)

    def watch_slopes(self, members: Sequence[_Item], slopes: Tensor) -> None:
        """Keep what a pass derived the loss of its datums to, to be looked at once."""
        self._slopes.append(([item.datum for item in members], slopes))

    def _place(self, members: Sequence[int], values: Tensor) -> str | None:
        return _place_not_finite(self.request, members, values.detach().cpu().numpy(), self.logprobs_D)

    def finish(self) -> ForwardBackwardOutput | InputError:
        """Add the gradient to the adapter's and return the outputs, or leave no trace of one that is not finite."""
        if not math.isfinite(self.loss):
            where = "" if self._bad is None else f" at {self._bad}"
            return InputError(
                f"the loss of {self.request.loss_fn} is {self.loss}{where}; nothing was added to the gradient. Check "
                "the inputs and the learning rate"
            )
        if self._slopes and not bool(torch.cat([slopes for _, slopes in self._slopes]).isfinite().all()):
            where = next(filter(None, (self._place(*each) for each in self._slopes)))
            return InputError(
                f"the gradient is not finite at {where}; nothing was added to it. Check the inputs of "
                f"{self.request.loss_fn} and the learning rate"
            )
        if self.gradient is not None:
            try:
                self.adapter.add(self.gradient)
            except InputError as error:
                return error
        return ForwardBackwardOutput(logprobs_D=self.logprobs_D, metrics={"loss:sum": self.loss})


def _summed(logprobs_T: NDArray[np.float32], weights_T: NDArray[Any]) -> NDArray[np.float32]:
    """Σ w·logprob as two values that add up to it, which together are as exact as a double nearly is."""
    total = np.sum(weights_T.astype(np.float64) * logprobs_T)
    most = np.float32(total)
    return np.array([most, total - np.float64(most)], dtype=np.float32)


def forward_backward(
    base: BaseModel, requests: Sequence[tuple[ForwardBackward, Adapter]], budget_tokens: int
) -> list[ForwardBackwardOutput | InputError]:
    """Run checked requests, at most one per adapter, in shared passes of at most `budget_tokens` positions.

    Each pass lays the datums of one adapter side by side, and what a loss compares is in one pass. What neighbors of a
    request begin with, as answers to one prompt do, is computed once (`groups_of`). What a request gets does not depend
    on the others but by rounding.
    """
    jobs = [_Job(request, adapter, base.dtype) for request, adapter in requests]
    groups = [
        ([_Item(index, datum, datum > group.start) for datum in range(group.start, group.stop)], group.size)
        for index, job in enumerate(jobs)
        for group in groups_of(job.request.data_D, LOSSES[job.request.loss_fn].group_datums, budget_tokens)
    ]
    for members in pack([size for _, size in groups], budget_tokens):
        together = sorted((item for i in members for item in groups[i][0]), key=lambda item: item.request)
        with deterministic():
            _run_pass(base, jobs, together)
    return [job.finish() for job in jobs]


def _run_pass(base: BaseModel, jobs: Sequence[_Job], items: Sequence[_Item]) -> None:
    placed = _place(jobs, items)
    adapters = base.arrange(_segments(jobs, items, placed.own_lengths), len(placed.tokens_N))
    tokens_N, positions_N = upload(placed.tokens_N, base.device), upload(placed.positions_N, base.device)
    asked = _asked(jobs, items, placed, base.device)
    is_training = any(jobs[item.request].gradient is not None for item in items)
    with torch.set_grad_enabled(is_training):
        hidden_NH = base.hidden(tokens_N, positions_N, placed.layout(base.device), adapters, size=placed.size)
    detached_NH = hidden_NH.detach()
    is_kept = is_training and base.head.can_keep(asked.targets, base.activations.max_bytes)
    kept: list[ChunkLogits] | None = [] if is_kept else None
    logprobs_M = asked.spread(base.head.logprobs(detached_NH, asked.targets, adapters, kept))
    logprobs_M.requires_grad_(is_training)
    with torch.set_grad_enabled(is_training):
        total, shares = _add_losses(jobs, items, logprobs_M)
    if is_training:
        (dlogprobs_M,) = torch.autograd.grad(total, logprobs_M)
        for share in shares:
            share.job.watch_slopes(share.members, dlogprobs_M[share.span])
        dhidden_NH = base.head.backward(detached_NH, asked.targets, asked.gathered(dlogprobs_M), adapters, kept)
        with base.routing.use(adapters):
            torch.autograd.backward(hidden_NH, dhidden_NH)


@dataclass(frozen=True, slots=True)
class _Share:
    """Part of a pass that is of one job."""

    job: _Job
    members: Sequence[_Item]
    shapes: Sequence[tuple[int, ...]]
    span: slice
    """Of the M targets."""
    losses: Tensor
    """Of targets, or of groups of datums."""


def _add_losses(jobs: Sequence[_Job], items: Sequence[_Item], logprobs_M: Tensor) -> tuple[Tensor, list[_Share]]:
    """Store each datum's log-probabilities and add its loss to its job; return the sum to differentiate, and what each
    job has of it.
    """
    total = logprobs_M.new_zeros((), dtype=torch.float64)
    sums: list[Tensor] = []
    shares: list[_Share] = []
    start = 0
    for request, group in itertools.groupby(items, key=lambda item: item.request):
        job, members = jobs[request], list(group)
        data_D = [job.request.data_D[item.datum] for item in members]
        shapes = [datum.loss_fn_inputs["target_tokens"].shape for datum in data_D]
        span = slice(start, start + sum(math.prod(shape) for shape in shapes))
        inputs = loss_inputs(job.request, data_D, logprobs_M.device)
        losses = LOSSES[job.request.loss_fn].function(logprobs_M[span], inputs)
        sums.append(losses.sum().double())
        if job.gradient is not None:
            total = total + sums[-1]
        shares.append(_Share(job, members, shapes, span, losses.detach()))
        start = span.stop
    # Read from the device once for all jobs.
    flat = logprobs_M.detach().cpu().numpy()
    for share, loss in zip(shares, torch.stack(sums).tolist(), strict=True):
        share.job.keep(share.members, share.shapes, flat[share.span], loss)
        share.job.watch(share.members, share.losses, loss)
    return total, shares


def _datum(jobs: Sequence[_Job], item: _Item) -> TrainingDatum:
    return jobs[item.request].request.data_D[item.datum]


def _segments(jobs: Sequence[_Job], items: Sequence[_Item], lengths: Sequence[int]) -> list[Segment]:
    """One segment per job of the pass; items of a job are neighbors."""
    segments: list[Segment] = []
    start = 0
    for item, length in zip(items, lengths, strict=True):
        job = jobs[item.request]
        is_same = segments and segments[-1].weights is job.weights
        begin = segments.pop().start if is_same else start
        start += length
        segments.append(Segment(start=begin, stop=start, weights=job.weights, gradient=job.gradient_views))
    return segments


def _place(jobs: Sequence[_Job], items: Sequence[_Item]) -> Placed:
    return place([_datum(jobs, item) for item in items], [item.is_joined for item in items])


@dataclass(frozen=True, slots=True)
class _Asked:
    """The targets that the head is asked for, in the order of their rows, and which of the M targets they are."""

    targets: Targets
    index_A: Tensor | None
    """None: all, in their order."""
    num_targets: int

    def spread(self, logprobs_A: Tensor) -> Tensor:
        """Of all M targets; 0 for those that are not asked for."""
        if self.index_A is None:
            return logprobs_A
        return logprobs_A.new_zeros(self.num_targets).index_copy_(0, self.index_A, logprobs_A)

    def gathered(self, gradient_M: Tensor) -> Tensor:
        """Of those that are asked for."""
        return gradient_M if self.index_A is None else gradient_M[self.index_A]


def _asked(jobs: Sequence[_Job], items: Sequence[_Item], placed: Placed, device: torch.device) -> _Asked:
    rows, tokens, wanted = [], [], []
    for item, rows_T in zip(items, placed.rows_D, strict=True):
        inputs = _datum(jobs, item).loss_fn_inputs
        targets = inputs["target_tokens"]
        per_position = 1 if targets.ndim == 1 else targets.shape[1]
        rows.append(np.repeat(rows_T, per_position))
        tokens.append(targets.reshape(-1).astype(np.int64))
        # Of groups nothing is returned but weighted sums, and what these are of.
        is_summed = LOSSES[jobs[item.request].request.loss_fn].group_datums > 1
        wanted.append(inputs["weights"] != 0 if is_summed else np.ones(targets.size, dtype=bool))
    rows_M, tokens_M, is_wanted_M = np.concatenate(rows), np.concatenate(tokens), np.concatenate(wanted)
    if is_wanted_M.all() and not placed.is_shared:
        return _Asked(Targets(torch.from_numpy(rows_M), upload(tokens_M, device)), None, len(rows_M))
    index_A = np.flatnonzero(is_wanted_M)
    index_A = index_A[np.argsort(rows_M[index_A], kind="stable")]
    asked = Targets(torch.from_numpy(rows_M[index_A]), upload(tokens_M[index_A], device))
    return _Asked(asked, upload(index_A, device), len(rows_M))


def _place_not_finite(
    request: ForwardBackward,
    members: Sequence[int],
    values: NDArray[np.float32],
    logprobs_D: Sequence[NDArray[np.float32]],
) -> str | None:
    """The first datum with such a value, in words, and of its targets with one the farthest from what is usual.

    `members` are datums of the request, `values` those of their targets, end to end, or of groups of datums;
    `logprobs_D` what the weights give for each datum. None: all are finite.
    """
    bad = np.flatnonzero(~np.isfinite(values))
    if not bad.size:
        return None
    targets_D = [request.data_D[datum].loss_fn_inputs["target_tokens"] for datum in members]
    ends = np.cumsum([targets.size for targets in targets_D])
    if values.size != ends[-1]:
        size = len(members) // values.size
        first = int(bad[0]) * size
        return "datums " + " and ".join(str(datum) for datum in members[first : first + size])
    at = int(np.searchsorted(ends, bad[0], side="right"))
    datum, targets = members[at], targets_D[at]
    own = bad[bad < ends[at]] - (ends[at] - targets.size)
    inputs = {key: array for key, array in request.data_D[datum].loss_fn_inputs.items() if array is not targets}
    sizes = [np.abs(array.reshape(-1)[own]) for array in inputs.values() if array.size == targets.size]
    target = int(own[np.argmax(np.max(sizes, axis=0))]) if sizes else int(own[0])
    found = f"datum {datum}, position {target // (targets.size // targets.shape[0])}"
    logprob = logprobs_D[datum].reshape(-1)[target] if logprobs_D[datum].size == targets.size else 0.0
    if not np.isfinite(logprob):
        return f"{found}, where the weights give a log-probability of {logprob:g}"
    told = [f"{key} {array.reshape(-1)[target]:g}" for key, array in inputs.items() if array.size == targets.size]
    return f"{found}, with {', '.join(told)}" if told else found
