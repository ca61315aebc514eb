"""Sets of instructions that may be used, one of four: the most that the processor has, or fewer, as on an older one.

COOKHOUSE_MAX_CPU_ISA     what the processor may have at most
avx2                      AVX2, FMA
avx512                    and AVX-512
avx512_bf16               and its dot products in bf16
amx                       and a matrix unit; as without the variable

Our kernels are compiled for one of the four, never for the processor at hand: those of a wheel and those built at first
use are then the same machine code.
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from cookhouse.errors import InputError

VARIABLE = "COOKHOUSE_MAX_CPU_ISA"
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Target:
    """A set of instructions that our kernels are compiled for."""

    name: str
    processor: frozenset[str]
    """Flags of /proc/cpuinfo of the processors that have it."""
    compiler: tuple[str, ...]
    torch: Mapping[str, str] = field(default_factory=dict)
    """Variables that torch, oneDNN and MKL read when they are first used, to use no more than this set."""


# The tuning decides how sums are rounded, too: GCC splits chains of multiply-adds for AMD's processors, and from 14 on
# also for "generic". So it is that of a processor for which no release does.
_AVX2 = ("-march=x86-64", *(f"-m{name}" for name in ("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe", "popcnt")))
_AVX512 = (*_AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")))
_BF16 = (*_AVX512, "-mavx512bf16")
_AMX = (*_BF16, "-mamx-tile", "-mamx-bf16")
_TUNING = "-mtune=haswell"
_AVX2_PROCESSOR = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe", "popcnt"})
_AVX512_PROCESSOR = _AVX2_PROCESSOR | {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")}
_BF16_PROCESSOR = _AVX512_PROCESSOR | {"avx512_bf16"}
TARGETS = (
    Target("amx", _BF16_PROCESSOR | {"amx_tile", "amx_bf16"}, (*_AMX, _TUNING)),
    Target("avx512_bf16", _BF16_PROCESSOR, (*_BF16, _TUNING), {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    Target("avx512", _AVX512_PROCESSOR, (*_AVX512, _TUNING), {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}),
    Target(
        "avx2",
        _AVX2_PROCESSOR,
        (*_AVX2, _TUNING),
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    ),
)
"""Each set has those behind it."""
NATIVE = Target("native", frozenset(), ("-march=native",))
"""For what is no x86-64 processor with AVX2: whatever it has."""


def usable_targets() -> tuple[Target, ...]:
    """Sets that this processor has and may use, the largest first; `NATIVE` alone where it has none.

    Raises:
        InputError: the variable names no set of instructions.
    """
    limit = _limit(os.environ)
    has = set(processor_fields().get("flags", "").split())
    return tuple(target for target in TARGETS[TARGETS.index(limit) :] if target.processor <= has) or (NATIVE,)


def narrow_torch(environ: MutableMapping[str, str]) -> None:
    """Have torch use no more either. Before it is loaded.

    Raises:
        InputError: the variable names no set of instructions.
    """
    environ.update(_limit(environ).torch)


def processor_fields(cpuinfo: Path | None = None) -> dict[str, str]:
    """Of the first processor of /proc/cpuinfo; empty where there is no such file."""
    try:
        first = (cpuinfo or _CPUINFO).read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _limit(environ: Mapping[str, str]) -> Target:
    name = environ.get(VARIABLE) or TARGETS[0].name
    for target in TARGETS:
        if target.name == name:
            return target
    allowed = ", ".join(target.name for target in reversed(TARGETS))
    raise InputError(f"{VARIABLE}={name}: there is no such set of instructions; use {allowed}, or unset it")
