"""The decoding kernel, compiled for this machine at first use."""

import ctypes
import functools
from pathlib import Path

from cookhouse.engine.native import build

# Infinities stand for "no score yet"; everything else of -ffast-math is wanted.
_FLAGS = ("-ffast-math", "-fno-finite-math-only")


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where there is no compiler; the log says why."""
    consequence = "decoding goes through torch, several times slower for small models"
    return build("decode", Path(__file__).parent, _FLAGS, consequence)
