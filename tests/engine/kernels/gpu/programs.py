"""Starts the programs beside this file, in processes in which Triton is imported without its interpreter."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_OF_KERNELS = re.compile(r"\btriton/|\bengine/kernels/gpu/")
"""Paths in what Triton prints about a kernel; other libraries may print as well when they are imported."""


def compiled_by(program: str) -> dict[str, dict[str, Any]]:
    """The JSON that a program prints, which must not fail and have Triton warn of nothing."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).parent / program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if _OF_KERNELS.search(line)]
    assert not warnings, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found
