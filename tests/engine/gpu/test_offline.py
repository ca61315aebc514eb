"""Catches what Triton's interpreter lets pass and its compiler does not, and kernels that a GPU would run slowly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_of_training_compile() -> None:
    """Compiling needs no GPU, and a process in which Triton was imported without its interpreter."""
    pytest.importorskip("triton")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).parent / "offline.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # where Triton warns
    found = json.loads(done.stdout)
    assert len(found) == 60
    for label, usage in found.items():
        # The smallest GPU has 99 KiB for all programs on a processor: at least one fits.
        assert usage["shared"] <= 99 * 1024, label
        assert usage.get("STACK", 0) == 0, f"{label} spills registers"
        # The normalizer of a row, and where its targets are: numbers by themselves.
        if "of one" not in label:
            assert usage["narrow"] <= (5 if "softmax" in label or "log_sum_exp" in label else 0), label
