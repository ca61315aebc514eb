"""The command line that walls off a worker with bubblewrap, where the worker may not open namespaces itself."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")


def bubblewrap_command(command: Sequence[str], folder: str, package: Path, disk_bytes: int) -> list[str]:
    """`command` as process 1 of its own namespaces, seeing Python, system libraries and the scratch `folder` alone."""
    arguments = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all",
        "--as-pid-1",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]
    executable = Path(sys.executable).resolve().parents[1]
    for path in (*_SYSTEM, sys.base_prefix, sys.prefix, str(executable), str(package)):
        if Path(path).is_symlink():
            arguments += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", str(disk_bytes), "--tmpfs", folder, "--chdir", folder]
    return [*arguments, *command]
