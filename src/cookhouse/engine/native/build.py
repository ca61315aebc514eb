"""Compiles C++ kernels for this machine at first use, and keeps them for the next."""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_log = logging.getLogger(__name__)
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC")
_PATIENCE_SECONDS = 120


def build(name: str, folder: Path, flags: Sequence[str], consequence: str) -> ctypes.CDLL | None:
    """The library of every C++ source in a folder, or None where there is no compiler.

    The log then says why, and what comes of it: `consequence`, as in "decoding goes through torch, which is slower".
    """
    found = shutil.which("g++") or shutil.which("c++")
    compiler = shlex.split(os.environ.get("CXX", "")) or ([found] if found else [])
    if not compiler:
        _log.info("no C++ compiler: %s", consequence)
        return None
    try:
        with _cache() as kept:
            return ctypes.CDLL(str(_compiled(compiler, name, folder, (*_FLAGS, *flags), kept)))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        _log.warning("the kernels %s could not be built, so %s: %s", name, consequence, output)
        return None


def _compiled(compiler: Sequence[str], name: str, sources: Path, flags: Sequence[str], folder: Path) -> Path:
    """Path in a folder of the library for these sources, compiler and processor, built unless it is there."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    units = sorted(sources.glob("*.cpp"))
    texts = [path.read_text(encoding="utf-8") for path in (*units, *sorted(sources.glob("*.h")))]
    identity = "\0".join((*texts, version, *flags, _processor()))
    target = folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    # Built beside its place, flushed and renamed: another process never sees half a file, nor does one after a crash.
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        built = Path(temporary) / target.name
        command = [*compiler, *flags, *(str(path) for path in units), "-o", str(built)]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
        with built.open("rb") as file:
            os.fsync(file.fileno())
        built.rename(target)
    return target


@contextmanager
def _cache() -> Iterator[Path]:
    """Where libraries are kept; a folder for this time alone where that one is not ours, or cannot be written."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cookhouse"
    reason = "it belongs to another user, or cannot be written"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Whoever else may write there could have us load any code.
        is_usable = folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError as error:
        is_usable, reason = False, str(error)
    if is_usable:
        yield folder
        return
    _log.info("compiled kernels are not kept in %s: %s", folder, reason)
    with tempfile.TemporaryDirectory(prefix="cookhouse-") as temporary:
        yield Path(temporary)


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
