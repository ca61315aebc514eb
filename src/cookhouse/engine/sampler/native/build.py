"""The decoding kernel, compiled for this machine at first use."""

import ctypes
import functools
from pathlib import Path

from cookhouse.engine.kernels.cpu import build

# Not -ffast-math: infinities stand for "no score yet", and its start-up code would have the whole process take numbers
# near zero for zero.
_FLAGS = (
    "-fassociative-math",
    "-fno-math-errno",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-freciprocal-math",
)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where there is no compiler; the log says why."""
    consequence = "decoding goes through torch, several times slower for small models"
    compiled = build("decode", Path(__file__).parent, _FLAGS, ("run_fp32", "run_bf16", "packs_bf16"), consequence)
    if compiled is not None:
        compiled.packs_bf16.restype = ctypes.c_bool
    return compiled
