"""Catches a missing module named in place of a system that is not supported."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_windows_is_refused_by_name() -> None:
    program = "import sys; sys.platform = 'win32'; import cookhouse.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: cookhouse does not run on Windows; use it inside WSL")


def test_an_old_python_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    # Catches pip's ResolutionImpossible as the first thing that somebody with Python 3.10 sees.
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12 && exit 0\nexit 1\n')
    old.chmod(0o755)
    venv = tmp_path / "venv"
    command = ["make", "run", f"PYTHON={old}", f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"cookhouse needs Python 3.11 or newer, and {old} is Python 3.10.12" in done.stderr
    assert "make run PYTHON=python3.12" in done.stderr
    assert not venv.exists()
