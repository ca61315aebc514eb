"""Catches a missing module named in place of a system that is not supported."""

import subprocess
import sys


def test_windows_is_refused_by_name() -> None:
    program = "import sys; sys.platform = 'win32'; import cookhouse.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: cookhouse does not run on Windows; use it inside WSL")
