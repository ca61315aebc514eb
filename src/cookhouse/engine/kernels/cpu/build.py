"""Compiles C++ kernels for this machine at first use, and keeps them for the next."""

import ctypes
import functools
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

from cookhouse.engine.instructions import compiler_flags
from cookhouse.engine.kernels.cpu.cache import cache_folder, is_ours

_log = logging.getLogger(__name__)
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC")
_COMPILERS = ("g++", "c++", "clang++")
_PATIENCE_SECONDS = 600


def build(
    name: str, folder: Path, flags: Sequence[str], functions: Sequence[str], consequence: str
) -> ctypes.CDLL | None:
    """The library of every C++ source in a folder, with `functions` in it, or None where it cannot be had.

    The log then says why, and what comes of it: `consequence`, as in "decoding goes through torch, which is slower".
    """
    compiler = _compiler(os.environ.get("CXX", ""))
    if not compiler:
        return None
    try:
        with _folder() as kept:
            return _library(compiler, name, folder, (*_FLAGS, *compiler_flags(), *flags), functions, kept)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        _log.warning("the kernels %s could not be built, so %s: %s", name, consequence, output)
        return None


@functools.cache
def _compiler(chosen: str) -> tuple[str, ...]:
    """The command, `chosen` if anything is; empty where there is none, which is said once."""
    command = tuple(shlex.split(chosen)) or next(((name,) for name in _COMPILERS if shutil.which(name)), ())
    found = shutil.which(command[0]) if command else None
    if found is not None:
        return (found, *command[1:])
    reason = f"CXX={chosen} is not there" if command else f"none of {', '.join(_COMPILERS)} is there"
    _log.warning(
        "no C++ compiler (%s), so training and sampling go through torch, several times slower; "
        "install g++ or name one in CXX",
        reason,
    )
    return ()


def _library(
    compiler: Sequence[str], name: str, sources: Path, flags: Sequence[str], functions: Sequence[str], folder: Path
) -> ctypes.CDLL:
    """The library kept in a folder for these sources, compiler and processor; built if it is not there, or damaged.

    Raises:
        OSError: it cannot be loaded or lacks one of the functions, freshly built.
    """
    units = sorted(sources.glob("*.cpp"))
    texts = [path.read_text(encoding="utf-8") for path in (*units, *sorted(sources.glob("*.h")))]
    identity = "\0".join((*texts, *compiler, _version(compiler), *flags, _processor()))
    target = folder / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if is_ours(target):
        try:
            return _loaded(target, functions)
        except OSError as error:
            _log.warning("the kernels kept in %s cannot be used and are built again: %s", target, error)
    _log.info("building the kernels (%s) for this processor, once: some seconds", name)
    return _compiled((*compiler, *flags, *map(str, units)), target, functions)


def _version(compiler: Sequence[str]) -> str:
    """All that a compiler says of itself: its release, its target and how it was configured."""
    done = subprocess.run([*compiler, "-v"], capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
    return done.stdout + done.stderr


def _compiled(command: Sequence[str], target: Path, functions: Sequence[str]) -> ctypes.CDLL:
    # Built beside its place, tried, flushed and renamed: another process never sees half a file, nor does one after a
    # crash. Loaded from there too, since what this process has of the old file would stand for its name.
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        built = Path(temporary) / target.name
        arguments = [*command, "-o", str(built)]
        subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
        compiled = _loaded(built, functions)
        built.chmod(0o700)
        with built.open("rb") as file:
            os.fsync(file.fileno())
        built.replace(target)
    return compiled


def _loaded(file: Path, functions: Sequence[str]) -> ctypes.CDLL:
    compiled = ctypes.CDLL(str(file))
    missing = [name for name in functions if not hasattr(compiled, name)]
    if missing:
        raise OSError(f"{file.name} has no {', '.join(missing)}")
    return compiled


@contextmanager
def _folder() -> Iterator[Path]:
    """Where libraries are kept; a folder for this time alone where there is none to trust."""
    kept = cache_folder()
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="cookhouse-") as temporary:
        yield Path(temporary)


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
