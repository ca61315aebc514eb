"""Which build of torch an installation would bring, in a line, from pip's report of what it would do.

python -m pip install --dry-run --quiet --report - torch | python -m scripts.torch_build
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

# Rounded, of torch 2.13 for Linux on x86-64: what is downloaded, and what that takes unpacked.
_CUDA = "2.7 GB to download, 5 GB on disk"
_CPU = "0.2 GB to download, 0.8 GB on disk"


def in_words(report: Mapping[str, Any]) -> str:
    """Empty where torch is there already."""
    packages = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in report["install"]}
    version = packages.get("torch")
    if version is None:
        return ""
    if any(name.startswith("nvidia-") for name in packages):
        return (
            f"torch {version} comes with CUDA: about {_CUDA}. A build for the CPU alone is about {_CPU}: "
            "make run INSTALLER=uv takes the build that fits the machine (https://docs.astral.sh/uv); with pip, "
            "see https://pytorch.org/get-started/locally"
        )
    return f"torch {version} comes without CUDA: about {_CPU}"


def main() -> None:
    text = sys.stdin.read()
    # Empty where pip could not tell: it says why, and again as it installs.
    if text and (words := in_words(json.loads(text))):
        print(words, flush=True)


if __name__ == "__main__":
    main()
