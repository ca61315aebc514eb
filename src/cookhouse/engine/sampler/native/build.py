"""Compiles the decoding kernel for this machine at first use, and keeps it for the next."""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

_log = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("decode.cpp")
# Infinities stand for "no score yet"; everything else of -ffast-math is wanted.
_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-finite-math-only", "-fopenmp", "-std=c++17", "-shared", "-fPIC")
_PATIENCE_SECONDS = 120


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where there is no compiler; the log says why."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        _log.info("no C++ compiler: decoding goes through torch, several times slower for small models")
        return None
    try:
        return ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        _log.warning("the decoding kernel could not be built, so decoding goes through torch: %s", output)
        return None


def _compiled(compiler: str) -> Path:
    """Path of the library for this source, compiler and processor, built unless it is there."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    sources = (path.read_text(encoding="utf-8") for path in (_SOURCE, *sorted(_SOURCE.parent.glob("*.h"))))
    identity = "\0".join((*sources, version, *_FLAGS, _processor()))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cookhouse"
    target = folder / f"decode-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # Built beside its place and renamed: another process never sees half a file.
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        built = Path(temporary) / target.name
        command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(built)]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
        built.rename(target)
    return target


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
