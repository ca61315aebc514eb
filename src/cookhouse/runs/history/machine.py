"""The machine that a run is on, as far as it can be found without loading a library."""

import os
import platform
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_CPU_FILE = Path("/proc/cpuinfo")
_GPU_FILES = Path("/proc/driver/nvidia/gpus")
_PACKAGES = ("tinker", "torch", "transformers")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts of a machine that show how fast a run could be on it."""

    host: str
    processor: str
    cores: int
    """That this process may run on."""
    memory_bytes: int | None
    gpus: Sequence[str] = ()

    def __str__(self) -> str:
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes / 2**30:.0f} GiB"
        gpus = "".join(f", {gpu}" for gpu in self.gpus)
        return f"{self.processor}, {self.cores} core{'s' * (self.cores != 1)}{memory}{gpus} ({self.host})"


def this_machine() -> Machine:
    """The one that this process is on."""
    return Machine(
        host=socket.gethostname(),
        processor=_processor(),
        cores=_num_cores(),
        memory_bytes=_memory_bytes(),
        gpus=_gpus(),
    )


def versions() -> dict[str, str]:
    """Of Python, and of the libraries that results depend on, by name."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        name = re.search(r"^model name\s*:\s*(.+)$", _CPU_FILE.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        name = None
    return name[1] if name else platform.processor() or platform.machine()


def _num_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not every system has it, or lets us
        return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpus() -> list[str]:
    """Names of NVIDIA's, as their driver has them."""
    names = []
    for file in sorted(_GPU_FILES.glob("*/information")):
        try:
            model = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
        except OSError:
            continue
        names.extend([] if model is None else [model[1].strip()])
    return names
