"""Catches what Triton's interpreter lets pass and its compiler does not, and kernels that a GPU would run slowly.

Compiling needs no GPU, and a process in which Triton was imported without its interpreter: `bench.compiled`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.kernels.gpu.launched import kernel_names

pytest.importorskip("triton")

_ROOT = Path(__file__).parents[4]
_TABLE = "bench/results/compiled.md"
_OF_KERNELS = re.compile(r"\btriton/|\bengine/kernels/gpu/")
"""Paths in what Triton prints about a kernel; other libraries may print as well when they are imported."""
_SHARED = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes for all programs on a processor: at least one fits. Of capability 8.x it is the smallest GPU's."""
_ATTENTION = ("read_kernel", "decode_kernel", "combine_kernel")


def _compiled() -> list[dict[str, Any]]:
    """Every kernel, call and GPU; nothing may fail, and Triton warn of nothing."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "bench.compiled", "--json"]
    done = subprocess.run(command, env=env, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if _OF_KERNELS.search(line)]
    assert not warnings, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _table() -> list[list[str]]:
    """Kernel, what it is called for, and precision, of each row of the table that is kept."""
    lines = [line for line in (_ROOT / _TABLE).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")][:3] for line in lines[2:]]


def test_every_kernel_is_in_the_table() -> None:
    """Catches a kernel that is compiled for no GPU, and two that go by one name."""
    names = kernel_names()
    assert len(names) == len(set(names))
    assert names == sorted({row[0] for row in _table()}), "add calls to bench/compiled_calls.py; bench.compiled --save"


@pytest.mark.slow
def test_kernels_compile_and_fit() -> None:
    """Catches tiles too large for shared memory, spilled registers, loads of single numbers, kernels that would be
    compiled again for other lengths or numbers of sequences, and a table of other calls. Its figures are not compared:
    they depend on the version of Triton.
    """
    found = _compiled()
    rows = sorted({(usage["kernel"], usage["called_for"], usage["precision"]) for usage in found})
    assert rows == sorted(map(tuple, _table())), "python -m bench.compiled --save"
    assert len(found) == len(rows) * len(_SHARED)
    for usage in found:
        label = " ".join(map(str, usage.values()))
        assert usage["shared"] <= _SHARED[usage["capability"]], label
        assert usage["variants"] == 1, label
        # The assembler keeps a few numbers of a tile in memory where another program then fits on a processor.
        assert usage["stack"] <= (32 if usage["kernel"] in _ATTENTION else 0), label
        # The normalizer of a row, and where its targets are: numbers by themselves.
        if usage["kernel"] not in _ATTENTION and usage["called_for"] != "one number":
            is_softmax = usage["kernel"] in ("softmax_backward_kernel", "log_sum_exp_kernel")
            assert usage["narrow"] <= (5 if is_softmax else 0), label
