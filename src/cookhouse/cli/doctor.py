"""`cookhouse doctor`: what this machine has for training, what is missing, and how to get it."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cookhouse.errors import InputError
from cookhouse.extras import extras, has_engine, install_command
from cookhouse.files import unwritable
from cookhouse.version import __version__

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "transformers", "tinker")
_INSTRUCTIONS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX"}
"""Flags of /proc/cpuinfo that engines make use of, the slowest first."""
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_ABOUT_CELLS = 13
_FEW_BYTES = 2 * 2**30


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about this machine."""

    about: str
    found: str
    way_out: str = ""
    """What to do about it; empty: nothing."""
    is_broken: bool = False
    """Whether nothing can be trained before that is done."""


def doctor() -> None:
    """Show what this machine has for training, what is missing, and how to get it.

    Processor, kernels, precision, memory, GPU, service and extras. Asks nothing over the network. Exits with 1 where
    nothing can be trained.
    """
    from cookhouse.telemetry import make_console, say_fact  # loads rich

    console, findings = make_console(), []
    for finding in _findings():
        findings.append(finding)
        say_fact(console, f"{finding.about:<{_ABOUT_CELLS}}", finding.found)
        if finding.way_out:
            say_fact(console, " " * _ABOUT_CELLS, f"-> {finding.way_out}")
    if any(finding.is_broken for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    yield Finding(about="cookhouse", found=f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield Finding(about="packages", found=", ".join(f"{name} {_version(name)}" for name in _PACKAGES))
    if has_engine():
        yield _processor(Path("/proc/cpuinfo"))
        yield _kernels()
        yield _device()
        yield _gpu()
    else:
        yield Finding(about="engine", found="not installed: runs train at a service", way_out=install_command("engine"))
        if not _has_nvidia_driver():
            found = "pip brings torch with CUDA, of gigabytes, and there is no GPU"
            yield Finding(about="", found=found, way_out=f"first a build for the CPU: {_torch_command('cpu')}")
    yield _memory()
    yield _disk(Path.cwd())
    yield _service()
    yield from _extras()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _processor(cpuinfo: Path) -> Finding:
    from cookhouse.engine.instructions import VARIABLE, processor_fields
    from cookhouse.engine.processors import allowed_cores
    from cookhouse.engine.share import num_threads

    fields = processor_fields(cpuinfo)
    flags = set(fields.get("flags", "").split())
    has = [name for flag, name in _INSTRUCTIONS.items() if flag in flags]
    found = f"{fields.get('model name', platform.processor() or platform.machine())}: {', '.join(has) or 'no AVX2'}"
    found += f"; {len(allowed_cores())} of {os.cpu_count()} cores, {num_threads()} threads"
    if limit := os.environ.get(VARIABLE):
        found += f"; {VARIABLE}={limit}"
    if not has:
        return Finding(
            about="processor", found=found, way_out="engines are fast on x86-64 processors with AVX2 or more"
        )
    return Finding(about="processor", found=found)


def _kernels() -> Finding:
    from cookhouse.engine.kernels.cpu import cpu_kernels
    from cookhouse.engine.kernels.cpu.build import PREBUILT
    from cookhouse.engine.kernels.cpu.cache import cache_folder

    kernels = cpu_kernels()
    if kernels is None:
        return Finding(
            about="kernels",
            found="none: training and sampling go through torch, several times slower",
            way_out="install g++ 11 or newer (apt install g++, dnf install gcc-c++), or name a C++ compiler in CXX",
        )
    if kernels.file.parent.name == PREBUILT:
        return Finding(about="kernels", found=f"prebuilt for {kernels.file.stem.partition('-')[2]}")
    folder = cache_folder()
    if folder is None:
        return Finding(
            about="kernels",
            found="compiled for this process alone: there is no folder to keep them in",
            way_out="set XDG_CACHE_HOME to a folder that only you can write",
        )
    return Finding(about="kernels", found=f"compiled, in {folder}")


def _device() -> Finding:
    from cookhouse.engine.device import device_in_words
    from cookhouse.engine.share import use_cores

    use_cores()
    chosen = {name: os.environ.get(f"COOKHOUSE_{name}") or None for name in ("DEVICE", "PRECISION")}
    try:
        found = device_in_words(chosen["DEVICE"], chosen["PRECISION"])
    except InputError as error:
        return Finding(about="engines use", found=str(error), way_out="unset COOKHOUSE_DEVICE and COOKHOUSE_PRECISION")
    return Finding(about="engines use", found=found)


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        found = "; ".join(_gpu_in_words(torch.cuda.get_device_properties(i)) for i in range(torch.cuda.device_count()))
        return Finding(about="GPU", found=found)
    has_driver = _has_nvidia_driver()
    if torch.version.cuda is None:
        if not has_driver:
            return Finding(about="GPU", found=f"none; torch {torch.__version__} computes on the CPU alone")
        found = f"there is a driver of NVIDIA's, and torch {torch.__version__} is a build for the CPU alone"
        return Finding(about="GPU", found=found, way_out=f"install a build with CUDA: {_torch_command('auto')}")
    if not has_driver:
        found = f"none; torch {torch.__version__} is a build with CUDA, of gigabytes"
        return Finding(about="GPU", found=found, way_out=f"one for the CPU is smaller: {_torch_command('cpu')}")
    return Finding(
        about="GPU",
        found=f"there is a driver of NVIDIA's, and torch {torch.__version__} finds no GPU",
        way_out="see what nvidia-smi says, and whether CUDA_VISIBLE_DEVICES hides it",
    )


def _has_nvidia_driver() -> bool:
    return _NVIDIA_DRIVER.exists() or shutil.which("nvidia-smi") is not None


def _torch_command(backend: str) -> str:
    """Command that installs a build of torch, of the same release where there is one; pip would have to be given the
    address of an index.
    """
    torch = (
        f"--reinstall-package torch torch=={version('torch').partition('+')[0]}" if has_engine(["torch"]) else "torch"
    )
    command = f"uv pip install --python {sys.executable} {torch} --torch-backend={backend}"
    return f"{command} (with pip: https://pytorch.org/get-started/locally)"


def _gpu_in_words(properties: "torch.cuda._CudaDeviceProperties") -> str:
    from cookhouse.engine.host_memory import show_bytes

    capability = f"{properties.major}.{properties.minor}"
    return f"{properties.name}, {show_bytes(properties.total_memory)}, compute capability {capability}"


def _memory() -> Finding:
    from cookhouse.engine.host_memory import available_bytes, show_bytes

    free = available_bytes()
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    way_out = "" if free >= _FEW_BYTES else "the embedded model takes about 1 GiB, larger ones more: end other programs"
    return Finding(about="memory", found=f"{show_bytes(free)} free of {show_bytes(total)}", way_out=way_out)


def _disk(folder: Path) -> Finding:
    from cookhouse.engine.host_memory import show_bytes

    free = shutil.disk_usage(folder).free
    if (reason := unwritable(folder)) is not None:
        found = f"{folder} cannot be written: {reason}"
        return Finding(about="disk", found=found, way_out="run in another folder, or set log_path")
    way_out = "" if free >= _FEW_BYTES else "a run keeps its checkpoints and rollouts here: free some, or set log_path"
    return Finding(about="disk", found=f"{show_bytes(free)} free in {folder}", way_out=way_out)


def _service() -> Finding:
    from cookhouse.service.connection import chosen_service

    try:
        address = chosen_service(None, os.environ)
    except InputError as error:
        said, _, way_out = str(error).partition("; ")
        return Finding(about="runs train", found=said, way_out=way_out, is_broken=True)
    if address is None and not has_engine():
        return Finding(
            about="runs train",
            found="nowhere: neither TINKER_API_KEY nor TINKER_BASE_URL is set, and there is no engine",
            way_out="set TINKER_API_KEY to use the hosted service, and TINKER_BASE_URL for another",
            is_broken=True,
        )
    if address is None:
        return Finding(about="runs train", found="on this machine: neither TINKER_API_KEY nor TINKER_BASE_URL is set")
    return Finding(about="runs train", found=f"at {address.base_url or 'the hosted service'}")


def _extras() -> Iterator[Finding]:
    every = [extra for extra in extras() if extra.name != "engine"]  # which has a line of its own
    there = [extra.name for extra in every if not extra.missing]
    yield Finding(about="extras", found=f"{', '.join(there) or 'none'} installed")
    lacking = [extra for extra in every if extra.missing]
    for extra in lacking:
        way_out = f"to add one: {install_command('NAME')}" if extra is lacking[-1] else ""
        yield Finding(about="", found=f"{extra.name} needs {', '.join(extra.missing)}", way_out=way_out)
