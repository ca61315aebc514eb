"""C++ kernels for this machine: those that the wheel brings, or compiled at first use and kept for the next."""

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
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.instructions import NATIVE, TARGETS, Target, usable_targets
from cookhouse.engine.kernels.cpu.cache import cache_folder, is_ours

_log = logging.getLogger(__name__)
_FLAGS = ("-O3", "-fopenmp", "-std=c++17", "-shared", "-fPIC")
_THREADS = "libgomp.so.1"
"""The threads of parallel regions, which torch has loaded: a second library would be a second pool of threads."""
PREBUILT = "prebuilt"
"""The folder of a wheel's libraries, next to their sources."""
_COMPILERS = ("g++", "c++", "clang++")
_PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Kernels:
    """The C++ sources of a folder, which become one library."""

    name: str
    folder: Path
    flags: tuple[str, ...]
    """For the compiler, in addition to those of all kernels."""
    functions: tuple[str, ...]
    """What has to be in the library."""

    @property
    def units(self) -> list[Path]:
        return sorted(self.folder.glob("*.cpp"))

    def prebuilt(self, target: Target) -> Path:
        """Path at which a wheel may have it."""
        return self.folder / PREBUILT / f"{self.name}-{target.name}.so"


def build(kernels: Kernels, consequence: str) -> ctypes.CDLL | None:
    """The library of kernels, or None where it cannot be had.

    The log then says why, and what comes of it: `consequence`, as in "decoding goes through torch, which is slower".
    """
    chosen = os.environ.get("CXX", "")
    if not chosen and (compiled := _brought(kernels)) is not None:
        return compiled
    compiler = _compiler(chosen)
    if not compiler:
        return None
    try:
        with _folder() as kept:
            return _library(compiler, kernels, kept)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or error
        _log.warning("the kernels %s could not be built, so %s: %s", kernels.name, consequence, output)
        return None


def prebuild(kernels: Kernels) -> Iterator[Path]:
    """Compile a library for each set of instructions into the folder of the sources, for a wheel.

    Raises:
        subprocess.SubprocessError: one does not compile.
    """
    compiler = _compiler(os.environ.get("CXX", ""))
    for target in TARGETS:
        file = kernels.prebuilt(target)
        file.parent.mkdir(exist_ok=True)
        _compile(_command(compiler, kernels, target), file)
        yield file


def _brought(kernels: Kernels) -> ctypes.CDLL | None:
    """The library that the wheel brings for this processor; None where it brings none, or none that loads."""
    file = next((file for target in usable_targets() if (file := kernels.prebuilt(target)).is_file()), None)
    if file is None:
        return None
    try:
        ctypes.CDLL(_THREADS, mode=os.RTLD_NOLOAD)
        return _loaded(file, kernels.functions)
    except OSError as error:
        _log.info("the kernels %s of this installation cannot be used: %s", kernels.name, error)
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


def _library(compiler: Sequence[str], kernels: Kernels, folder: Path) -> ctypes.CDLL:
    """The library kept in a folder for these sources, compiler and processor; built if it is not there, or damaged.

    Raises:
        OSError: it cannot be loaded or lacks one of the functions, freshly built.
    """
    headers = sorted(kernels.folder.glob("*.h"))
    texts = [path.read_text(encoding="utf-8") for path in (*kernels.units, *headers)]
    version = _version(compiler)
    targets = usable_targets()
    for target in targets:
        command = _command(compiler, kernels, target)
        identity = "\0".join((*texts, *command, version, _processor() if target is NATIVE else ""))
        file = folder / f"{kernels.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
        if is_ours(file):
            try:
                return _loaded(file, kernels.functions)
            except OSError as error:
                _log.warning("the kernels kept in %s cannot be used and are built again: %s", file, error)
        if target is targets[-1] or _knows(compiler, target):
            break
    _log.info("building the kernels (%s) for this processor, once: a minute or more on two cores", kernels.name)
    return _compiled(command, file, kernels.functions)


def _command(compiler: Sequence[str], kernels: Kernels, target: Target) -> list[str]:
    return [*compiler, *_FLAGS, *target.compiler, *kernels.flags, *map(str, kernels.units)]


def _knows(compiler: Sequence[str], target: Target) -> bool:
    """True if a compiler is new enough for a set of instructions."""
    command = [*compiler, *target.compiler, "-fsyntax-only", "-x", "c++", os.devnull]
    return subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_SECONDS).returncode == 0


def _version(compiler: Sequence[str]) -> str:
    """All that a compiler says of itself: its release, its target and how it was configured."""
    done = subprocess.run([*compiler, "-v"], capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
    return done.stdout + done.stderr


def _compiled(command: Sequence[str], target: Path, functions: Sequence[str]) -> ctypes.CDLL:
    # Built next to its place, tried, flushed and renamed: another process never sees half a file, nor does one after a
    # crash. Loaded from there too, since what this process has of the old file would stand for its name.
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        built = Path(temporary) / target.name
        _compile(command, built)
        compiled = _loaded(built, functions)
        built.chmod(0o700)
        with built.open("rb") as file:
            os.fsync(file.fileno())
        built.replace(target)
    return compiled


def _compile(command: Sequence[str], file: Path) -> None:
    arguments = [*command, "-o", str(file)]
    subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)


def _loaded(file: Path, functions: Sequence[str]) -> ctypes.CDLL:
    compiled = ctypes.CDLL(str(file))
    missing = [name for name in functions if not hasattr(compiled, name)]
    if missing:
        raise OSError(f"{file.name} has no {', '.join(missing)}")
    return compiled


@contextmanager
def _folder() -> Iterator[Path]:
    """Folder in which libraries are kept; a folder for this time alone where there is none to trust."""
    kept = cache_folder()
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="cookhouse-") as temporary:
        yield Path(temporary)


def _processor() -> str:
    """Facts about the processor that -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
