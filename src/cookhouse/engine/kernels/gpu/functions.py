"""The kernels of training on a GPU, called as those on a CPU are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cookhouse.engine.kernels.gpu.elementwise import (
    gate,
    gate_backward,
    log_sum_exp,
    norm,
    norm_backward,
    rotate,
    rotate_backward,
    softmax_backward,
)

_FUNCTIONS: dict[str, Callable[..., None]] = {
    "norm": norm,
    "norm_backward": norm_backward,
    "rotate": rotate,
    "rotate_backward": rotate_backward,
    "gate": gate,
    "gate_backward": gate_backward,
    "log_sum_exp": log_sum_exp,
    "softmax_backward": softmax_backward,
}


class GpuKernels:
    """The functions by name; Triton compiles each for a precision and sizes at its first call."""

    names = frozenset(_FUNCTIONS)

    def __call__(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Start a function on the current stream. Tensors are contiguous, and those of numbers are of `dtype`."""
        del dtype  # which tensors carry
        assert all(a.is_contiguous() for a in arguments if isinstance(a, Tensor))
        _FUNCTIONS[name](*arguments)

    def constant(self, tensor: Tensor) -> Tensor:
        """As it is: the functions read either precision."""
        return tensor.contiguous()

    @staticmethod
    def check(device: torch.device) -> None:
        """Fail if Triton cannot compile for a device here, or start what it compiled."""
        x = torch.zeros(1, device=device)
        gate(x, x, 1, torch.empty_like(x))
