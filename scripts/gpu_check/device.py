"""Stage `device`: what the machine is and has, and whether memory and products run at the speed that it should have."""

import argparse
import importlib
import importlib.util
import platform
import subprocess
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from scripts.gpu_check.figures import show

_MODULES = (
    *("torch", "triton", "transformers", "peft", "accelerate", "datasets", "trl", "pytest", "xdist", "tinker"),
    *("fastapi", "sqlalchemy", "pyrage", "cookhouse", "cookhouse.server.main"),
)
_VERSIONS = (
    *("torch", "triton", "transformers", "tokenizers", "huggingface-hub", "numpy", "peft", "accelerate", "trl"),
    *("datasets", "pytest", "fla-core", "flash-attn", "cookhouse"),
)


def main() -> None:
    """Print figures as they are found, so that a hang leaves those before it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    device = parser.parse_args().device
    present = {name: version for name in _VERSIONS if (version := _version(name))}
    show({"python": platform.python_version(), "versions": present, "requirements": list(_unmet())})
    print(_said("nvidia-smi"), flush=True)
    asked = ("driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit", "memory.used")
    show({"nvidia_smi": _said("nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader").strip()})
    broken = {name: why for name in _MODULES if (why := _import_error(name))}
    show({"broken": broken})
    if "torch" not in broken:
        show(_torch_figures(device))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _unmet() -> Iterator[str]:
    """What cookhouse, the benchmarks' peers, and all that they require, require and have in another version or not."""
    if importlib.util.find_spec("packaging") is None:
        yield "unknown without the package packaging"
        return
    from packaging.requirements import Requirement

    seen: set[tuple[str, str]] = set()
    left = [("cookhouse", "engine"), ("trl", ""), ("datasets", ""), ("peft", ""), ("accelerate", "")]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen or _version(name) is None:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                version = _version(requirement.name)
                if version is None or not requirement.specifier.contains(version, prereleases=True):
                    yield f"{name}: {requirement.name}{requirement.specifier}, here {version}"
                left += [(requirement.name, each) for each in ("", *requirement.extras)]


def _import_error(name: str) -> str | None:
    try:
        importlib.import_module(name)
    # Whatever an import may raise is what is asked for here.
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"


def _torch_figures(device: str) -> dict[str, Any]:
    import torch
    from bench.decoding import copy_bandwidth, peak_bandwidth
    from bench.flops import measured_flops, peak_flops

    figures: dict[str, Any] = {"gpus": torch.cuda.device_count(), "torch_cuda": torch.version.cuda}
    if device == "cuda":
        if not torch.cuda.is_available():
            return figures
        free, total = torch.cuda.mem_get_info()
        figures |= {
            "gpu": torch.cuda.get_device_name(),
            "capability": ".".join(map(str, torch.cuda.get_device_capability())),
            "free_gigabytes": free / 1e9,
            "total_gigabytes": total / 1e9,
        }
        show(figures)
        figures["bandwidth_share"] = copy_bandwidth(device) / peak_bandwidth(device)[0]
        figures["flops_share"] = measured_flops(device, "bfloat16", 8192) / peak_flops(device, "bfloat16", None)[0]
        figures["mm_out_dtype"] = _takes_out_dtype(device)
    else:
        figures["copy_gigabytes_per_second"] = copy_bandwidth(device) / 1e9
    return figures


def _takes_out_dtype(device: str) -> bool:
    """Whether a product of bf16 matrices can hand over its sums in fp32."""
    import torch

    a, b = (torch.randn(64, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
    try:
        return torch.mm(a, b, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError) as error:
        print(f"mm with out_dtype: {error}")
        return False


if __name__ == "__main__":
    main()
