"""Compiles what `paged_attention` launches for GPUs that need not be here, through Triton's own way of launching.

A program of its own, for a process in which Triton is imported without its interpreter. Prints JSON: for each model and
kernel the largest number of bytes of shared memory, and how many times it was compiled.
"""

import json
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from cookhouse.engine.kernels.gpu.paged_attention import paged_attention

# Compute capability, precision, heads of queries and of keys, features of a key and of a value, window, sinks, softcap.
MODELS = {
    "Qwen3-8B on Ampere": (80, torch.bfloat16, (32, 8), (128, 128), None, False, None),
    "Qwen3-8B": (90, torch.bfloat16, (32, 8), (128, 128), None, False, None),
    "Qwen3-8B in fp32": (90, torch.float32, (32, 8), (128, 128), None, False, None),
    "gpt-oss": (90, torch.bfloat16, (64, 8), (64, 64), 128, True, None),
    "DeepSeek-V3": (90, torch.bfloat16, (128, 128), (192, 128), None, False, None),
    "Gemma 3": (80, torch.bfloat16, (16, 8), (256, 256), 1024, False, None),
    "Gemma 2": (80, torch.bfloat16, (16, 8), (256, 256), 4096, False, 50.0),
}


class _Driver:
    """A GPU of the compute capability that is its number, on which nothing can be launched."""

    capability = 0

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def _attend(
    dtype: torch.dtype,
    heads: tuple[int, int],
    dims: tuple[int, int],
    window: int | None,
    has_sinks: bool,
    softcap: float | None,
    lengths: list[int],
    table_width: int,
) -> None:
    keys, values = (torch.empty(16, heads[1], dim, dtype=dtype) for dim in dims)
    paged_attention(
        torch.empty(sum(lengths), heads[0], dims[0], dtype=dtype),
        keys,
        values,
        torch.empty(len(lengths), table_width, dtype=torch.int32),
        torch.empty(len(lengths) + 1, dtype=torch.int32),
        torch.empty(len(lengths), dtype=torch.int32),
        block_size=16,
        max_queries=max(lengths),
        min_queries=min(lengths),
        scaling=0.1,
        window=window,
        sinks_H=torch.empty(heads[0], dtype=dtype) if has_sinks else None,
        softcap=softcap,
    )


def main() -> None:
    """Compile everything."""
    gpu = _Driver()
    driver.set_active(gpu)
    kernels: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        kernels.append((self.__name__, run(self, *arguments, grid=grid, warmup=True, **options)))
        return kernels[-1][1]

    JITFunction.run = compile_only
    found = {}
    for model, (gpu.capability, *shape) in MODELS.items():
        kernels.clear()
        for lengths, table_width in (([1, 1, 1], 100), ([1] * 16, 128), ([1, 500, 16], 2048), ([33], 33)):
            _attend(*shape, lengths=lengths, table_width=table_width)  # type: ignore[arg-type, misc]
        for name in sorted({name for name, _ in kernels}):
            compiled = {id(kernel): kernel for of, kernel in kernels if of == name}.values()
            shared = max(kernel.metadata.shared for kernel in compiled)
            found[f"{model} {name}"] = {"capability": gpu.capability, "shared": shared, "variants": len(compiled)}
    print(json.dumps(found))  # noqa: T201


main()
