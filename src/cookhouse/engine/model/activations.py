"""Activations that a training pass keeps for its backward: those of every decoder layer while they fit into memory,
else of as many layers as fit; the others keep their input alone and are computed again.

Legend: N packed positions of a pass, H hidden.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from cookhouse.engine.host_memory import show_bytes
from cookhouse.engine.lora.lora import Segment, Weights
from cookhouse.engine.memory import free_bytes, total_bytes
from cookhouse.engine.shortage import ShortageError

_PROBE_TOKENS = 64
_SMALL_BYTES = 2**26
"""Kept without asking how much is free, which takes 0.2 ms."""
_FREE_SHARE = 0.5
"""Of the free memory; what a layer, the head and the gradients need while they are computed is in the other half."""
_PASS_TOKENS = {"cpu": 4096, "cuda": 16384}
"""Positions of a training pass. On a CPU cost grows faster than tokens beyond; a GPU's products are at full speed by
then, and what any pass costs is little compared with them."""
_KEPT_SHARE = 3 / 8
"""Of a GPU's memory, for the activations of a pass: a shorter one that keeps all beats one that computes again."""
_LEAST_KEPT_TOKENS = 4096
"""But not below this, where products become slow."""
_COMPUTED_SHARE = 1 / 8
"""Of a GPU's memory, for a pass in which everything is computed again."""
_LEAST_TOKENS = 1024

Probe = Callable[[int, Sequence[Segment]], Tensor]
"""Computes a pass over one sequence of some length, inside `torch.enable_grad`."""


class PassTooLongError(ShortageError):
    """Memory does not suffice for a pass, however little it keeps."""


class Activations:
    """The memory of one model's training passes. Gradients are the same to the bit, whatever is computed again."""

    def __init__(self, decoder: nn.Module, device: torch.device, probe: Probe) -> None:
        self.max_bytes: int | None = None
        """Activations that a pass may keep; None: half of the memory that is free when it begins."""
        self.pass_bytes: Callable[[float], int] = lambda _: free_bytes(device)
        """Memory that a pass may take, where so much is wanted."""
        self._layers: list[Any] = [m for m in decoder.modules() if isinstance(m, GradientCheckpointingLayer)]
        self._constants = _storages((*decoder.parameters(), *decoder.buffers()))
        self._device = device
        self._probe = probe
        self._bytes_per_token: dict[int, float] = {}
        for layer in self._layers:
            # What `activation_checkpointing_enable` of transformers sets; its name differs between versions.
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)

    @contextmanager
    def planned(self, num_tokens: int, input_bytes: int, segments: Sequence[Segment]) -> Iterator[None]:
        """Let the forward of one pass keep what fits; for the arguments see `plan`."""
        num_recomputed = self.plan(num_tokens, input_bytes, segments)
        if num_recomputed:
            self._recompute(num_recomputed)
        try:
            yield
        finally:
            if num_recomputed:
                self._recompute(0)

    @contextmanager
    def at_most(self, num_bytes: int) -> Iterator[None]:
        """Let passes keep so much, for a while."""
        before, self.max_bytes = self.max_bytes, num_bytes
        try:
            yield
        finally:
            self.max_bytes = before

    def plan(self, num_tokens: int, input_bytes: int, segments: Sequence[Segment]) -> int:
        """Number of layers, counted from the first, that compute again. `input_bytes` is what one token takes before a
        layer.

        Raises:
            PassTooLongError: memory does not suffice even where all of them do.
        """
        largest = max(segments, key=lambda segment: segment.weights.layout.num_parameters, default=None)
        kept = self._measured(None if largest is None else largest.weights)
        needed = num_tokens * kept
        self._check(num_tokens, self._computed(kept, input_bytes))
        excess = needed - self._limit(needed)
        saving = max(needed / max(len(self._layers), 1) - num_tokens * input_bytes, 1)
        return min(max(math.ceil(excess / saving), 0), len(self._layers))

    def pass_tokens(self, input_bytes: int, example: Callable[[], Weights | None]) -> int:
        """Positions that a pass may have unless one sequence is longer; for `input_bytes` see `plan`.

        It goes by the memory of the device, not by what is free: passes are the same each time, to the bit. `example`
        makes an adapter for a pass to be measured with: a layer that trains one keeps its input, a frozen one does not.
        """
        tokens = _PASS_TOKENS[self._device.type]
        if self._device.type != "cuda":
            return tokens
        kept = self._measured(example())
        computed = self._computed(kept, input_bytes)
        total = total_bytes(self._device)
        while tokens > _LEAST_KEPT_TOKENS and tokens * kept > total * _KEPT_SHARE:
            tokens //= 2
        while tokens > _LEAST_TOKENS and tokens * computed > total * _COMPUTED_SHARE:
            tokens //= 2
        return tokens

    def _limit(self, needed_bytes: float) -> float:
        if self.max_bytes is not None:
            return self.max_bytes
        return (
            _SMALL_BYTES if needed_bytes <= _SMALL_BYTES else self.pass_bytes(needed_bytes / _FREE_SHARE) * _FREE_SHARE
        )

    def _computed(self, kept: float, input_bytes: int) -> float:
        """Bytes per token of a pass in which every layer computes again: the layers' inputs, and the activations of one
        with their gradients; `kept` is what all layers keep of a token where none does.
        """
        return len(self._layers) * input_bytes + 2 * kept / max(len(self._layers), 1)

    def _check(self, num_tokens: int, bytes_per_token: float) -> None:
        least = int(num_tokens * bytes_per_token)
        if least <= _SMALL_BYTES:
            return
        free = self.pass_bytes(least)
        if least > free:
            raise PassTooLongError(
                f"a pass of {num_tokens} positions takes at least {show_bytes(least)} and {show_bytes(free)} of memory "
                "are free; shorten the longest sequence, end other sessions, or use a smaller base model"
            )

    def _recompute(self, num_layers: int) -> None:
        """Have the first layers compute again in passes until the next call."""
        for index, layer in enumerate(self._layers):
            # Its own flag only: no module inside behaves as in training.
            layer.gradient_checkpointing = layer.training = index < num_layers

    def _measured(self, weights: Weights | None) -> float:
        """Bytes of activations per token, seen once in a short pass for adapters of like rank."""
        rank = 0 if weights is None else weights.layout.spec.rank
        bucket = rank.bit_length()
        if bucket not in self._bytes_per_token:
            self._bytes_per_token[bucket] = self._measure(weights)
        return self._bytes_per_token[bucket]

    def _measure(self, weights: Weights | None) -> float:
        seen: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            seen.update(_storages([tensor]))
            return tensor.detach()  # the tensor itself would be held by its own graph, for ever

        segments = [] if weights is None else [Segment(start=0, stop=_PROBE_TOKENS, weights=weights)]
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            hidden_NH = self._probe(_PROBE_TOKENS, segments)
        del hidden_NH  # and with it the graph: until now nothing that was seen could be freed
        return sum(size for pointer, size in seen.items() if pointer not in self._constants) / _PROBE_TOKENS


def _storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Size of the memory that each of some tensors lies in, by address."""
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
