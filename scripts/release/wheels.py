"""The packages of a release: a source distribution, a wheel for every machine, one with kernels for Linux on x86-64.

    python -m scripts.release.wheels dist        # with the tools of `make build/release-venv/installed`

The wheel is built from the source distribution. The one for Linux is the same with the kernels, compiled by the modules
in it, so that they are what these would build at first use.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Stays torch's, which is loaded first: with a copy of our own there would be two pools of threads.
_NOT_OURS = "libgomp.so.1"
_PREBUILD = """
from cookhouse.engine.kernels.cpu import functions
from cookhouse.engine.kernels.cpu.build import prebuild
from cookhouse.engine.kernels.cpu.decode import build as decode
for kernels in (functions.KERNELS, decode.KERNELS):
    for file in prebuild(kernels):
        print("compiled", file.name, flush=True)
"""


def build_packages(folder: Path) -> list[Path]:
    """In a folder that is emptied first. The tools are those of the folder RELEASE_TOOLS."""
    shutil.rmtree(folder, ignore_errors=True)
    _tool("build", "--outdir", str(folder), ".")
    (pure,) = folder.glob("*.whl")
    with tempfile.TemporaryDirectory() as temporary:
        packed = _with_kernels(pure, temporary)
        _tool("auditwheel", "repair", "--exclude", _NOT_OURS, "--wheel-dir", str(folder), packed)
    return sorted(folder.iterdir())


def _with_kernels(pure: Path, temporary: str) -> str:
    """A wheel for this platform, not yet checked."""
    _tool("wheel", "unpack", "--dest", temporary, str(pure))
    (unpacked,) = Path(temporary).iterdir()
    # Without a cache of bytecode, which would go into the wheel.
    environment = os.environ | {"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-P", "-c", _PREBUILD], env=environment, cwd=temporary, check=True)
    (metadata,) = unpacked.glob("*.dist-info/WHEEL")
    text = metadata.read_text(encoding="utf-8").replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    metadata.write_text(re.sub(r"Tag: .*", "Tag: py3-none-linux_x86_64", text), encoding="utf-8")
    _tool("wheel", "pack", "--dest-dir", temporary, str(unpacked))
    (packed,) = Path(temporary).glob("*.whl")
    return str(packed)


def _tool(name: str, *arguments: str) -> None:
    # Tools such as patchelf are looked for on the path.
    place = Path(os.environ["RELEASE_TOOLS"])
    environment = os.environ | {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([place / "python", "-m", name, *arguments], env=environment, check=True)


if __name__ == "__main__":
    build_packages(Path(sys.argv[1]))
