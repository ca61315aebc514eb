"""The kernels of training on a CPU, called with tensors."""

import ctypes
import functools
from collections.abc import Callable, Mapping
from ctypes import Structure, c_bool, c_double, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.cpu.build import Kernels, build
from cookhouse.engine.kernels.cpu.decode import library

# Not -ffast-math: sums are written in vectors where order may not matter, and what is no number must stay so.
_FLAGS = ("-fno-math-errno", "-fno-trapping-math")
LANES = 16
"""Rows of scratch that a kernel writes are rounded up to a multiple."""
TILE = 32
"""Features of a linear layer that the matrix unit takes are a multiple."""
_SUFFIXES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
_TYPES = {"p": c_void_p, "n": c_int64, "f": c_float}
_SIGNATURES = {
    "norm": "ppfnnp",
    "norm_backward": "ppfnnpp",
    "rotate": "ppfppnnnp",
    "rotate_backward": "ppfppnnnpp",
    "gate": "ppnp",
    "gate_backward": "ppnppp",
    "log_sum_exp": "pnnp",
    "softmax_backward": "pnnppp",
    "attention": "pppppp",
    "attention_backward": "ppppppppp",
    "lora": "pnpnpnpn",
    "lora_backward": "pnpnpnpnp",
}
_TILE_SIGNATURES = {"linear": "pnpnnppnpp", "wide_linear": "pnpnnppnpp", "linear_backward": "pnpnnppnpp"}
"""Of functions for bf16 alone, on processors with a matrix unit."""
_BF16_SIGNATURES = {"residual_norm_backward": "ppfnnpp"}
_SAMPLED_SIGNATURES = {
    "residual_norm": "ppfnnp",
    "rows_rotate": "ppfppnnnp",
    "rows_gate": "ppnp",
    "rows_attention": "pppppp",
    "rows_linear": "pnpnnppnpnpp",
}
"""Of the forward in bf16 that sampling has too, compiled with it (see training.h)."""
_REPLACED = {"rotate": "rows_rotate", "gate": "rows_gate"}
"""Functions whose forward in bf16 is sampling's."""
KERNELS = Kernels(
    "train",
    Path(__file__).parent,
    _FLAGS,
    (
        *("has_tiles", "has_bf16_dots", "bind_threads"),
        *(f"{name}_{suffix}" for name in _SIGNATURES for suffix in _SUFFIXES.values()),
        *(f"{name}_bf16" for name in _BF16_SIGNATURES),
    ),
)


class AttentionShape(Structure):
    """`Attention` of attention.h."""

    _fields_ = (
        *((name, c_int64) for name in ("num_sequences", "num_heads", "num_kv_heads", "key_dim", "value_dim", "window")),
        ("starts", c_void_p),
        ("scaling", c_float),
    )


class LoraSegment(Structure):
    """`LoraSegment` of lora.h."""

    _fields_ = (
        *((name, c_int64) for name in ("start", "stop", "rank")),
        *((name, c_void_p) for name in ("a", "b", "da", "db")),
        ("scaling", c_double),
    )


class CpuKernels:
    """The compiled functions, by name and precision."""

    gains_from_bf16: bool
    """Whether the processor multiplies bf16 faster than fp32: by a matrix unit, or by dot products."""
    file: Path
    """Where they were loaded from."""

    def __init__(self, compiled: ctypes.CDLL, sampling: ctypes.CDLL | None) -> None:
        self.file = Path(compiled._name)
        compiled.has_tiles.restype = compiled.has_bf16_dots.restype = compiled.bind_threads.restype = c_bool
        self._bind_threads: Callable[[], bool] = compiled.bind_threads
        self.gains_from_bf16 = compiled.has_tiles() or compiled.has_bf16_dots()
        self._functions: dict[tuple[str, torch.dtype], Any] = {}
        for dtype in _SUFFIXES:
            self._add(compiled, _SIGNATURES, dtype)
        self._add(compiled, _BF16_SIGNATURES, torch.bfloat16)
        if compiled.has_tiles():
            self._add(compiled, _TILE_SIGNATURES, torch.bfloat16)
        if sampling is not None:
            self._add(sampling, _SAMPLED_SIGNATURES, torch.bfloat16)
            for name, replacement in _REPLACED.items():
                self._functions[name, torch.bfloat16] = self._functions[replacement, torch.bfloat16]
        self.names = frozenset(name for name, _ in self._functions)

    def _add(self, compiled: ctypes.CDLL, signatures: Mapping[str, str], dtype: torch.dtype) -> None:
        for name, letters in signatures.items():
            function = getattr(compiled, f"{name}_{_SUFFIXES[dtype]}")
            function.argtypes = [_TYPES[letter] for letter in letters]
            function.restype = None
            self._functions[name, dtype] = function

    def __call__(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Call a function for numbers of `dtype`. Tensors are contiguous and pass their address."""
        self._functions[name, dtype](*(_address(a) if isinstance(a, Tensor) else a for a in arguments))

    def bind_threads(self) -> bool:
        """Bind the calling thread and those that compute for it to a core each; False where cores would be left."""
        return self._bind_threads()

    def constant(self, tensor: Tensor) -> Tensor:
        """In fp32, whatever the precision of the function."""
        return tensor.float().contiguous()


@functools.cache
def cpu_kernels() -> CpuKernels | None:
    """The kernels of this machine; None where there are none."""
    compiled = build(KERNELS, "training goes through torch, which is slower")
    return None if compiled is None else CpuKernels(compiled, library())


def _address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return tensor.data_ptr()
