"""Choice of the kernels that compute on a tensor: C++ on a CPU, Triton on a GPU. Without, torch computes."""

import functools
import importlib.util
import logging
from typing import Any, Protocol

import torch
from torch import Tensor

from cookhouse.engine.kernels.cpu import cpu_kernels

_log = logging.getLogger(__name__)
_CONSEQUENCE = "training and sampling go through torch, which is several times slower"
_DTYPES = (torch.float32, torch.bfloat16)


class Kernels(Protocol):
    """Functions by name, of the meaning and the arguments that elementwise.cpp gives them, for fp32 and bf16."""

    @property
    def names(self) -> frozenset[str]:
        """The functions there are: those for attention, adapters and a residual stream in fp32 are on the CPU only."""

    def __call__(self, name: str, dtype: torch.dtype, *arguments: Any) -> None:
        """Call a function for numbers of `dtype`. Tensors are contiguous and all on one device."""

    def constant(self, tensor: Tensor) -> Tensor:
        """The weight of a norm, and cosines and sines, as the functions read them."""


def kernels_for(x: Tensor, *names: str) -> Kernels | None:
    """Kernels for tensors like this; None where there are none, or they lack one of the functions named."""
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
    """The kernels of a GPU, once one has run there; None where none does, and the log says why."""
    # Triton comes with CUDA builds of torch, and computes bf16 from Ampere on.
    is_able = torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 0)
    if not is_able or importlib.util.find_spec("triton") is None:
        _log.warning("Triton does not compute on %s, so %s", device, _CONSEQUENCE)
        return None
    try:
        from cookhouse.engine.kernels.gpu.functions import GpuKernels

        GpuKernels.check(device)
    # It compiles a launcher with the C compiler of the machine, then loads it: that fails in many ways, all harmless.
    except Exception as error:
        _log.warning("Triton's kernels do not run on %s, so %s: %s", device, _CONSEQUENCE, error)
        return None
    return GpuKernels()
