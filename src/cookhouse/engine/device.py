"""Device and precision of an engine, by what the machine can do."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cookhouse.engine.kernels.cpu import cpu_kernels
from cookhouse.engine.switches import VARIABLE, is_on
from cookhouse.errors import InputError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(name: str | None) -> torch.device:
    """The named device, or CUDA where there is one, else the CPU. A CUDA device becomes the current one of this thread.

    Raises:
        InputError: `name` is no device, or CUDA was named and there is none, or none of this index.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}; use cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"the engine does not compute on device {name!r}; use cpu, cuda or cuda:N")
    return _prepared(name) if device.type == "cuda" else device


def _prepared(name: str) -> torch.device:
    """A CUDA device made the current one, under the settings that the engine's exactness rests on."""
    if not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for and this machine has no CUDA device; use cpu")
    count = torch.cuda.device_count()
    # The index in the name: torch keeps eight bits of it, so that 256 would be 0.
    if int(name.partition(":")[2] or 0) >= count:
        raise InputError(f"device {name!r} was asked for and this machine has {count}, counted from 0; use cuda")
    # cuBLAS gives the same sums only out of a workspace of fixed size; read when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # fp32 is fp32: with TF32's 10 bits of mantissa sampler and trainer differ by 1e-3. The environment may have it on.
    torch.set_float32_matmul_precision("highest")
    # Otherwise long sums that cuBLAS splits, as over the tokens of a gradient, are added in bf16 instead of fp32.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.cuda.set_device(torch.device(name))  # Triton launches there, and `cuda` alone means this one
    if is_on("fa3"):
        _activate_fa3()
    return torch.device("cuda", torch.cuda.current_device())


@functools.cache
def _activate_fa3() -> None:
    """Have torch's attention go through FlashAttention 3, once a process: what it replaces then stays replaced."""
    from torch.nn.attention import activate_flash_attention_impl

    try:
        activate_flash_attention_impl("FA3")
    except (ImportError, RuntimeError, ValueError) as error:
        raise InputError(f"{VARIABLE} names fa3, which cannot be used here ({error}); leave it out") from error


@contextmanager
def deterministic() -> Iterator[None]:
    """Have what torch computes be the same to the bit each time.

    Otherwise `index_put` with `accumulate`, and with it the backward of an index, add by atomics, in an order that
    varies: on a GPU, and in fp32 on a CPU by several threads. On a GPU so does the backward of attention. An operation
    that has no other way raises RuntimeError.
    """
    mode = torch.get_deterministic_debug_mode()
    was_filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("error")  # as `use_deterministic_algorithms`, which loads a compiler first
    # It would write every new tensor twice, to show reads of memory that nothing was written to.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = was_filling  # type: ignore[attr-defined]


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
        is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if is_fast else torch.float32
    # A step takes a third less time where the processor multiplies bf16 faster; on others fp32 is faster, and exact.
    kernels = cpu_kernels()
    return torch.bfloat16 if kernels is not None and kernels.gains_from_bf16 else torch.float32


def device_in_words(name: str | None, precision: str | None) -> str:
    """Device and precision of an engine, for a person. Raises as the two above."""
    device = choose_device(name)
    dtype = str(choose_dtype(precision, device)).removeprefix("torch.")
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return f"{place}, {dtype}"
