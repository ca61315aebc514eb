"""What the machine can do: device, precision and threads of an engine."""

import functools
import os

import torch

from cookhouse.errors import InputError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(name: str | None) -> torch.device:
    """The named device, or CUDA where there is one, else the CPU.

    Raises:
        InputError: `name` is no device, or CUDA was named and there is none.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}; use cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for and this machine has no CUDA device; use cpu")
    return device


def choose_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The named precision of the base model and of activations, or the one the device gains from.

    Adapters, gradients, optimizer state and log-probabilities are fp32 in either.

    Raises:
        InputError: `name` is neither `float32` nor `bfloat16`.
    """
    if name is not None:
        if name not in _DTYPES:
            raise InputError(f"unknown precision {name!r}; use {' or '.join(_DTYPES)}")
        return _DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.float32


@functools.cache
def use_cores() -> int:
    """Give torch the cores this process may run on, unless OMP_NUM_THREADS says otherwise; return the number."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    return torch.get_num_threads()
