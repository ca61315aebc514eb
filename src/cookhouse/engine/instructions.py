"""Which instructions of an x86-64 processor may be used: all it has, or fewer, as on an older one.

COOKHOUSE_MAX_CPU_ISA     what the processor may have at most
avx2                      AVX2, FMA
avx512                    and AVX-512
avx512_bf16               and its dot products in bf16
amx                       and a matrix unit; as without the variable
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from cookhouse.errors import InputError

VARIABLE = "COOKHOUSE_MAX_CPU_ISA"


@dataclass(frozen=True)
class _Limit:
    flags: tuple[str, ...] = ()
    """For the compiler of our kernels. Macros stand for what it uses only by name."""
    torch: Mapping[str, str] = field(default_factory=dict)
    """Variables that torch, oneDNN and MKL read when they are first used."""


_NO_TILES = "-U__AMX_BF16__"
_NO_BF16 = "-U__AVX512BF16__"
_LIMITS = {
    "avx2": _Limit(
        ("-mno-avx512f", _NO_TILES, _NO_BF16),
        {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    ),
    "avx512": _Limit((_NO_TILES, _NO_BF16), {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}),
    "avx512_bf16": _Limit((_NO_TILES,), {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}),
    "amx": _Limit(),
}


def compiler_flags() -> tuple[str, ...]:
    """What keeps the compiler, asked for all this processor has, from what may not be used.

    Raises:
        InputError: the variable names no set of instructions.
    """
    return _limit(os.environ).flags


def narrow_torch(environ: MutableMapping[str, str]) -> None:
    """Have torch use no more either. Before it is loaded.

    Raises:
        InputError: the variable names no set of instructions.
    """
    environ.update(_limit(environ).torch)


def _limit(environ: Mapping[str, str]) -> _Limit:
    name = environ.get(VARIABLE) or "amx"
    if name not in _LIMITS:
        allowed = ", ".join(_LIMITS)
        raise InputError(f"{VARIABLE}={name}: there is no such set of instructions; use {allowed}, or unset it")
    return _LIMITS[name]
