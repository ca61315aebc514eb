"""The delta rule over packed sequences by the package flash-linear-attention, on a GPU in bf16. Ours is its reference.

Legend: N packed positions, S sequences, K key heads, V value heads, D features of a key, E features of a value,
C channels.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cookhouse.engine.kernels.upload import upload
from cookhouse.engine.model.delta.inputs import StateShape
from cookhouse.engine.switches import VARIABLE, is_on
from cookhouse.errors import InputError


def is_chosen(x: Tensor) -> bool:
    """True if tensors like this go through it."""
    return x.device.type == "cuda" and x.dtype == torch.bfloat16 and is_on("fla")


def starts_of(lengths: Sequence[int], device: torch.device) -> Tensor:
    """First row of each packed sequence and the number of rows (S + 1,)."""
    return upload(np.array([0, *accumulate(lengths)], np.int64), device)


def run_packed(mixed_NC: Tensor, decay_NV: Tensor, beta_NV: Tensor, shape: StateShape, starts_S1: Tensor) -> Tensor:
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
    out_1NVE, _ = _rule()(
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
def _rule() -> Callable[..., Any]:
    try:
        rule: Callable[..., Any] = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    except ImportError as error:
        raise InputError(
            f"{VARIABLE} names fla, and flash-linear-attention is not here ({error}); install it, or leave fla out"
        ) from error
    return rule
