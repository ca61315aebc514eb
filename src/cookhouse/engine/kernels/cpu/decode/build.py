"""The kernel of sampling; training in bf16 has its forward from it."""

import ctypes
import functools
from pathlib import Path

from cookhouse.engine.kernels.cpu.build import Kernels, build

# Not -ffast-math: infinities stand for "no score yet", and its start-up code would have the whole process take numbers
# near zero for zero.
_FLAGS = (
    "-fassociative-math",
    "-fno-math-errno",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-freciprocal-math",
)

_FUNCTIONS = (
    "run_fp32",
    "run_bf16",
    "packs_bf16",
    "fills_bf16_ranks",
    "residual_norm_bf16",
    "rows_rotate_bf16",
    "rows_gate_bf16",
    "rows_attention_bf16",
    "rows_linear_bf16",
)

KERNELS = Kernels("decode", Path(__file__).parent, _FLAGS, _FUNCTIONS)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it cannot be had; the log says why."""
    consequence = "decoding goes through torch, several times slower for small models"
    compiled = build(KERNELS, consequence)
    if compiled is not None:
        compiled.packs_bf16.restype = compiled.fills_bf16_ranks.restype = ctypes.c_bool
        compiled.fills_bf16_ranks.argtypes = (ctypes.c_int64, ctypes.c_int64)
    return compiled
