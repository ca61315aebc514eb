"""Kernels of training for what torch takes many passes over memory for: C++ on a CPU, Triton on a GPU.

Where there are none for a tensor, torch computes.
"""

import functools
from typing import Any, Protocol

import torch
from torch import Tensor

from cookhouse.engine.native import cpu_kernels

_DTYPES = (torch.float32, torch.bfloat16)


class Kernels(Protocol):
    """Functions by name, of the meaning and the arguments that elementwise.cpp gives them, for fp32 and bf16."""

    @property
    def names(self) -> frozenset[str]:
        """The functions there are: those for attention and adapters are on the CPU only."""

    def __call__(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Call a function for numbers of `dtype`. Tensors are contiguous and all on one device."""

    def norm_weight(self, weight: Tensor) -> Tensor:
        """The weight of a norm as the functions read it."""


def kernels_for(x: Tensor, *names: str) -> Kernels | None:
    """What computes on tensors like this; None where nothing does, or lacks one of the functions named."""
    if x.dtype not in _DTYPES:
        return None
    kernels: Kernels | None = None
    if x.device.type == "cpu":
        kernels = cpu_kernels()
    elif x.device.type == "cuda":
        kernels = _gpu_kernels(x.device)
    return kernels if kernels is not None and kernels.names.issuperset(names) else None


@functools.cache
def _gpu_kernels(device: torch.device) -> Kernels | None:
    del device
    return None
