"""Compiles the kernels of training for GPUs that need not be here, as their host functions would start them.

A program of its own, for a process in which Triton is imported without its interpreter. Prints JSON: for each kernel,
precision and compute capability the bytes of shared memory, registers per thread, bytes of stack (spilled registers)
and how many loads and stores of global memory take less than 16 bytes.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from cookhouse.engine.kernels.gpu import gate, norm, rotary, softmax
from cookhouse.engine.kernels.gpu.functions import GpuKernels

_TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.int64: "*i64"}
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class _Compiler:
    """Takes the place of `launch`: compiles what would start."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)
        self.kernel: Any = None

    def __call__(self, kernel: Any, _: tuple[int, ...], *arguments: Any, num_warps: int, **constants: Any) -> None:
        values = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
        signature = {name: "constexpr" if name in constants else _type(value) for name, value in values.items()}
        fixed = {name: value for name, value in values.items() if signature[name] == "constexpr"}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, (name, value) in enumerate(values.items())
            if name not in fixed and (isinstance(value, Tensor) or value % 16 == 0)
        }
        source = ASTSource(kernel, signature=signature, constexprs=fixed, attrs=aligned)
        options = {"num_warps": num_warps, "enable_fp_fusion": True}
        self.kernel = triton.compile(source, target=self._target, options=options)


def _type(value: Any) -> str:
    if isinstance(value, Tensor):
        return _TYPES[value.dtype]
    if value is None or value == 1:  # Triton compiles a kernel of its own for either
        return "constexpr"
    if isinstance(value, float):
        return "fp32"
    return "i32" if value < 2**31 else "i64"


def _calls(dtype: torch.dtype) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Labels, functions and arguments: sizes of models, and tensors of more than 2³¹ numbers."""

    def numbers(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    for size in (2880, 16384):
        rows, weight = numbers(64, size), numbers(size)
        yield f"norm {size}", "norm", (rows, weight, 1e-6, 64, size, rows)
        yield f"norm_backward {size}", "norm_backward", (rows, weight, 1e-6, 64, size, rows, rows)
    heads, weight, angles = numbers(64, 32, 128), numbers(128), numbers(64, 128)
    shape = (angles, angles, *heads.shape)
    yield "rotate", "rotate", (heads, None, 0.0, *shape, heads)
    yield "rotate normed", "rotate", (heads, weight, 1e-6, *shape, heads)
    yield "rotate_backward", "rotate_backward", (None, None, 0.0, *shape, heads, heads)
    yield "rotate_backward normed", "rotate_backward", (heads, weight, 1e-6, *shape, heads, heads)
    one = numbers(1)
    yield "gate of one", "gate", (one, one, 1, one)
    for num_rows in (64, 2**18):
        hidden = numbers(num_rows, 12288)
        yield f"gate {num_rows}", "gate", (hidden, hidden, hidden.numel(), hidden)
        yield f"gate_backward {num_rows}", "gate_backward", (hidden, hidden, hidden.numel(), hidden, hidden, hidden)
    logits, sums = numbers(2**16, 151936), torch.empty(2**16, dtype=torch.float64, device="meta")
    integers, weights = (torch.empty(2**17, dtype=d, device="meta") for d in (torch.int64, torch.float32))
    yield "log_sum_exp", "log_sum_exp", (logits, *logits.shape, sums)
    yield "softmax_backward", "softmax_backward", (logits, *logits.shape, integers, integers, weights)


def _usage(kernel: Any) -> dict[str, int]:
    accesses = re.findall(r"(?:ld|st)\.global\.\S+", kernel.asm["ptx"])
    vectors = [access for access in accesses if re.search(r"\.v4\.b32|\.v2\.b64", access)]
    found = {"shared": kernel.metadata.shared, "narrow": len(accesses) - len(vectors)}
    if _CUOBJDUMP.exists():
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(kernel.asm["cubin"])
            file.flush()
            listing = subprocess.run([_CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True)
        for name in ("REG", "STACK"):
            found[name] = max(int(n) for n in re.findall(rf"{name}:(\d+)", listing.stdout))
    return found


def main() -> None:
    """Compile everything."""
    found = {}
    for capability in (80, 90):
        compiler = _Compiler(capability)
        for module in (gate, norm, rotary, softmax):
            vars(module)["launch"] = compiler
        for dtype in (torch.float32, torch.bfloat16):
            for label, name, arguments in _calls(dtype):
                GpuKernels()(name, dtype, *arguments)
                found[f"{label} {dtype} sm_{capability}"] = _usage(compiler.kernel)
    print(json.dumps(found))  # noqa: T201


main()
