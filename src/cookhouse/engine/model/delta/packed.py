"""Gated delta layers over packed sequences, differentiable: state and convolution begin anew with each one.

Backward computes each wave of chunks again from the state before it, so that nothing is kept but inputs, outputs and
one state per wave. On a GPU in bf16 the package flash-linear-attention may compute it; ours is its reference.

Legend: N packed positions, M chunks of a wave, T positions of a chunk, R of them that are not padding, K key heads,
V value heads, D features of a key, E features of a value, C channels, S sequences of a group.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.delta.chunks import DeltaSpan, Group, Wave, groups_of
from cookhouse.engine.model.delta.convolution import Convolution, inside_of
from cookhouse.engine.model.delta.inputs import DeltaInputs, StateShape
from cookhouse.engine.model.delta.rule import Chunks, OnStep, run_chunks
from cookhouse.engine.switches import VARIABLE, is_on
from cookhouse.errors import InputError


class PackedDelta:
    """Sequences of these lengths, laid end to end."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self._lengths = tuple(lengths)
        rows = itertools.accumulate(self._lengths[:-1], initial=0)
        spans = [DeltaSpan(row, length) for row, length in zip(rows, self._lengths, strict=True)]
        self._groups = groups_of(spans, device)
        self._device = device
        self._inside: dict[int, list[Tensor]] = {}
        """By taps; see `inside_of`."""

    @functools.cached_property
    def _starts_S1(self) -> Tensor:  # noqa: N802  a shape suffix
        """First row of each sequence, and the number of rows."""
        return upload(np.array([0, *itertools.accumulate(self._lengths)], np.int64), self._device)

    def recur(self, inputs: DeltaInputs) -> Tensor:
        """Output (N, V, E) in the precision of the inputs."""
        inside, num_taps = self._inside, inputs.shape.num_taps
        if num_taps not in inside:
            inside[num_taps] = inside_of(self._lengths, num_taps, self._device)
        mixed_NC: Tensor = Convolution.apply(inputs.mixed_NC, inputs.taps_CW, inside[num_taps])  # type: ignore[no-untyped-call]
        if _uses_fla(mixed_NC):
            return _run_fla(mixed_NC, inputs.decay_NV, inputs.beta_NV, inputs.shape, self._starts_S1)
        out: Tensor = _PackedRule.apply(  # type: ignore[no-untyped-call]
            mixed_NC, inputs.decay_NV, inputs.beta_NV, inputs.shape, self._groups
        )
        return out


def run_wave(
    inputs: tuple[Tensor, Tensor, Tensor],
    shape: StateShape,
    wave: Wave,
    state_SKGDE: Tensor,
    on_step: OnStep | None = None,
) -> tuple[Tensor, Tensor]:
    """Output (M, T, V, E) and the states after a wave, of convolved inputs, decays and rates by packed row."""
    return _compute(_gather(inputs, wave), shape, wave, state_SKGDE, on_step)


def put_rows(target: Tensor, wave: Wave, values_MT: Tensor) -> None:
    """Write what is not padding to its packed rows."""
    target[wave.rows_MT.view(-1)[wave.real_R]] = values_MT.flatten(0, 1)[wave.real_R].to(target.dtype)


class _PackedRule(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixed_NC: Tensor, decay_NV: Tensor, beta_NV: Tensor, shape: StateShape, groups: Sequence[Group]
    ) -> Tensor:
        inputs = mixed_NC, decay_NV, beta_NV
        out_NVE = mixed_NC.new_empty(len(mixed_NC), shape.num_value_heads, shape.value_dim)
        states = []
        for group in groups:
            state = _zeros(group, shape, mixed_NC.device)
            for wave in group.waves:
                states += [state] if wave is not group.waves[0] else []
                out, state = run_wave(inputs, shape, wave, state)
                put_rows(out_NVE, wave, out)
        ctx.save_for_backward(*inputs, *states)
        ctx.shape, ctx.groups = shape, groups
        return out_NVE

    @staticmethod
    def backward(ctx: Any, dout_NVE: Tensor) -> tuple[Tensor | None, ...]:
        mixed_NC, decay_NV, beta_NV, *states = ctx.saved_tensors
        inputs = mixed_NC, decay_NV, beta_NV
        gradients = [torch.empty_like(x) for x in inputs]
        for group in reversed(ctx.groups):
            dstate = torch.zeros(0, *ctx.shape.recurrent, device=mixed_NC.device)
            for wave in reversed(group.waves):
                state = _zeros(group, ctx.shape, mixed_NC.device) if wave is group.waves[0] else states.pop()
                leaves = [x.detach().requires_grad_() for x in (*_gather(inputs, wave), state)]
                with torch.enable_grad():
                    out, after = _compute(leaves[:3], ctx.shape, wave, leaves[3], None)
                    after = after[: len(dstate)]
                dout = dout_NVE[wave.rows_MT].masked_fill(wave.is_padding_MT[..., None, None], 0.0).float()
                *parts, dstate = torch.autograd.grad((out, after), leaves, (dout, dstate))
                for target, part in zip(gradients, parts, strict=True):
                    put_rows(target, wave, part)
        return *gradients, None, None


def _zeros(group: Group, shape: StateShape, device: torch.device) -> Tensor:
    return torch.zeros(len(group.members), *shape.recurrent, device=device)


def _gather(inputs: tuple[Tensor, Tensor, Tensor], wave: Wave) -> list[Tensor]:
    return [x[wave.rows_MT].float() for x in inputs]


def _compute(
    parts: Sequence[Tensor], shape: StateShape, wave: Wave, state: Tensor, on_step: OnStep | None
) -> tuple[Tensor, Tensor]:
    mixed, decay, beta = parts
    is_padding = wave.is_padding_MT.unsqueeze(-1)
    chunks = Chunks.of(mixed, decay.masked_fill(is_padding, 0.0), beta.masked_fill(is_padding, 0.0), shape)
    out_MKGTE, state = run_chunks(chunks, state, wave.counts, on_step)
    return out_MKGTE.permute(0, 3, 1, 2, 4).flatten(2, 3), state


def _uses_fla(x: Tensor) -> bool:
    """True if tensors like this go through the package flash-linear-attention."""
    return x.device.type == "cuda" and x.dtype == torch.bfloat16 and is_on("fla")


def _run_fla(mixed_NC: Tensor, decay_NV: Tensor, beta_NV: Tensor, shape: StateShape, starts_S1: Tensor) -> Tensor:
    """Output (N, V, E) of convolved inputs, decays and rates, differentiable; each sequence begins with no state.

    Raises:
        InputError: it is not installed.
    """
    keys = shape.num_key_heads * shape.key_dim
    q, k, v = torch.split(mixed_NC, [keys, keys, shape.num_value_heads * shape.value_dim], -1)
    q_1NVD, k_1NVD = (
        x.reshape(1, -1, shape.num_key_heads, shape.key_dim).repeat_interleave(shape.per_key, 2) for x in (q, k)
    )
    v_1NVE = v.reshape(1, -1, shape.num_value_heads, shape.value_dim)
    out_1NVE, _ = _fla_rule()(
        q_1NVD,
        k_1NVD,
        v_1NVE,
        g=decay_NV.unsqueeze(0),
        beta=beta_NV.unsqueeze(0),
        scale=shape.key_dim**-0.5,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=starts_S1,
    )
    out_NVE: Tensor = out_1NVE[0]
    return out_NVE


@functools.cache
def _fla_rule() -> Callable[..., Any]:
    try:
        rule: Callable[..., Any] = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    except ImportError as error:
        raise InputError(
            f"{VARIABLE} names fla, and flash-linear-attention is not here ({error}); install it, or leave fla out"
        ) from error
    return rule
