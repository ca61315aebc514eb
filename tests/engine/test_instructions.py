"""Catches kernels narrowed in name alone, and torch left at full width beside them."""

import itertools
import os
import subprocess
import sys

import pytest

from cookhouse.engine.instructions import VARIABLE, compiler_flags, narrow_torch
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


def test_each_set_takes_more_away_than_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("amx", "avx512_bf16", "avx512", "avx2"):
        monkeypatch.setenv(VARIABLE, name)
        found.append(set(compiler_flags()))
    assert found[0] == set()
    assert all(fewer < more for fewer, more in itertools.pairwise(found))


def test_without_the_variable_nothing_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert compiler_flags() == ()
    environ = {"PATH": "/bin"}
    narrow_torch(environ)
    assert environ == {"PATH": "/bin"}


def test_an_unknown_set_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"COOKHOUSE_MAX_CPU_ISA=sse2: .* use avx2, avx512, avx512_bf16, amx"):
        narrow_torch({VARIABLE: "sse2"})
