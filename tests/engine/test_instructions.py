"""Catches kernels narrowed in name alone, and torch left at full width beside them."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from cookhouse.engine import instructions
from cookhouse.engine.instructions import NATIVE, TARGETS, VARIABLE, narrow_torch, usable_targets
from cookhouse.errors import InputError

_PROGRAM = """
import os
from cookhouse.engine.instructions import narrow_torch
narrow_torch(os.environ)
import torch
from cookhouse.engine.kernels.cpu import cpu_kernels
kernels = cpu_kernels()
assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "DEFAULT"), torch.backends.cpu.get_cpu_capability()
assert kernels is None or not kernels.gains_from_bf16
assert kernels is None or "linear" not in kernels.names
"""


@pytest.mark.slow
def test_avx2_is_all_that_is_left() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], env={**os.environ, VARIABLE: "avx2"}, check=True)


ALL = {flag for target in TARGETS for flag in target.processor}


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[set[str]], None]:
    """Have the machine be one with these flags."""

    def put(flags: set[str]) -> None:
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(f"model name\t: Some\nflags\t\t: fpu sse {' '.join(sorted(flags))}\n\nflags\t: none\n")
        monkeypatch.setattr(instructions, "_CPUINFO", cpuinfo)

    monkeypatch.delenv(VARIABLE, raising=False)
    return put


@pytest.mark.parametrize(
    ("lacks", "names"),
    [
        ((), ["amx", "avx512_bf16", "avx512", "avx2"]),
        (("amx_bf16",), ["avx512_bf16", "avx512", "avx2"]),
        (("amx_tile", "avx512_bf16"), ["avx512", "avx2"]),
        (("avx512vl",), ["avx2"]),
        (("avx512_bf16",), ["avx512", "avx2"]),
        (("fma",), ["native"]),
        (ALL, ["native"]),
    ],
)
def test_a_processor_has_the_sets_of_which_it_has_all(
    lacks: Collection[str], names: list[str], processor: Callable[[set[str]], None]
) -> None:
    """Catches a kernel with instructions that the processor does not have: the process then dies."""
    processor(ALL - set(lacks))
    assert [target.name for target in usable_targets()] == names


@pytest.mark.parametrize("limit", ["avx2", "avx512", "avx512_bf16", "amx"])
def test_the_variable_takes_away_what_is_above_it(
    limit: str, processor: Callable[[set[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor(ALL)
    monkeypatch.setenv(VARIABLE, limit)
    assert usable_targets()[0].name == limit
    processor(set())
    assert usable_targets() == (NATIVE,)


def test_each_set_has_the_next_and_all_are_tuned_alike() -> None:
    """Catches one target tuned for a processor of its own: the same sums would round otherwise there."""
    for more, fewer in itertools.pairwise(TARGETS):
        assert set(more.compiler) > set(fewer.compiler)
        assert more.processor > fewer.processor
    assert all("-march=native" not in target.compiler for target in TARGETS)
    (tuning,) = {flag for target in TARGETS for flag in target.compiler if flag.startswith("-mtune=")}
    assert tuning not in ("-mtune=generic", "-mtune=native")


def test_without_the_variable_torch_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    environ = {"PATH": "/bin"}
    narrow_torch(environ)
    assert environ == {"PATH": "/bin"}


def test_an_unknown_set_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"COOKHOUSE_MAX_CPU_ISA=sse2: .* use avx2, avx512, avx512_bf16, amx"):
        narrow_torch({VARIABLE: "sse2"})
