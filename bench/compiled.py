"""Compiles Triton's kernels for GPUs that need not be here, as Triton launches them, and says what they take.

    python -m bench.compiled           prints a table of registers, spilled bytes and shared memory
    python -m bench.compiled --save    keeps it as bench/results/compiled.md
    python -m bench.compiled --json    prints one object per kernel, call and GPU

In a process in which Triton is imported without its interpreter. Figures depend on the version of Triton, which brings
its assembler.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from bench.compiled_calls import calls
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

CAPABILITIES = (80, 90, 100)
RESULT = Path(__file__).parent / "results/compiled.md"

_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
_HEAD = """\
# What Triton's compiler makes of the kernels

By `python -m bench.compiled --save`, Triton {version}, without a GPU. For each compute capability: registers of a
thread, bytes of its stack (where registers did not suffice), bytes of shared memory of a program.

"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What one kernel takes where it is called like this, on a GPU of this compute capability."""

    kernel: str
    called_for: str
    precision: str
    capability: int
    warps: int
    registers: int
    """Of a thread."""
    stack: int
    """Bytes of a thread; more than none where registers are spilled."""
    shared: int
    """Bytes of a program, the most of all variants."""
    narrow: int
    """Loads and stores of global memory that take less than 16 bytes."""
    variants: int
    """How many times the kernel was compiled."""


class _Driver:
    """A GPU of the compute capability that is its number, on which nothing can be launched."""

    capability = 0

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)


def compile_all() -> Iterator[Usage]:
    """Every call for every capability."""
    gpu = _Driver()
    driver.set_active(gpu)
    kernels: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        kernels.append((self.__name__, run(self, *arguments, grid=grid, warmup=True, **options)))
        return kernels[-1][1]

    JITFunction.run = compile_only
    for gpu.capability in CAPABILITIES:
        for called_for, dtype, start in calls():
            kernels.clear()
            start()
            for name in dict.fromkeys(name for name, _ in kernels):
                variants = list({id(kernel): kernel for of, kernel in kernels if of == name}.values())
                listed = [_listing(kernel) for kernel in variants]
                yield Usage(
                    kernel=name,
                    called_for=called_for,
                    precision=str(dtype).removeprefix("torch."),
                    capability=gpu.capability,
                    warps=variants[0].metadata.num_warps,
                    registers=max(one["REG"] for one in listed),
                    stack=max(one["STACK"] for one in listed),
                    shared=max(kernel.metadata.shared for kernel in variants),
                    narrow=max(map(_num_narrow, variants)),
                    variants=len(variants),
                )


def _listing(kernel: Any) -> dict[str, int]:
    """What a thread of machine code takes, by the names of CUDA's own tool."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        listing = subprocess.run([_CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True)
    return {name: int(number) for name, number in re.findall(r"(REG|STACK):(\d+)", listing.stdout)}


def _num_narrow(kernel: Any) -> int:
    accesses = re.findall(r"(?:ld|st)\.global\.\S+", kernel.asm["ptx"])
    return sum(not re.search(r"\.v4\.b32|\.v2\.b64", access) for access in accesses)


def table(usages: Sequence[Usage]) -> str:
    """A page with one row per kernel and call."""
    rows: dict[tuple[str, str, str], list[Usage]] = {}
    for usage in usages:
        rows.setdefault((usage.kernel, usage.called_for, usage.precision), []).append(usage)
    heads = ["kernel", "called for", "precision", "warps", *(f"sm_{capability}" for capability in CAPABILITIES)]
    lines = [heads, ["---"] * len(heads)]
    for names, found in sorted(rows.items()):
        of_gpus = (f"{usage.registers}, {usage.stack}, {usage.shared}" for usage in found)
        lines.append([*names, str(found[0].warps), *of_gpus])
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return _HEAD.format(version=triton.__version__) + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"keep the table as bench/results/{RESULT.name}")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    options = parser.parse_args()
    usages = list(compile_all())
    print(json.dumps([asdict(usage) for usage in usages]) if options.json else table(usages))
    if options.save:
        RESULT.write_text(table(usages), encoding="utf-8")


if __name__ == "__main__":
    main()
