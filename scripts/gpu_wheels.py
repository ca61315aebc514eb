"""Make a folder of wheels: cookhouse, and what a machine with a GPU lacks for it.

    python -m scripts.gpu_wheels FOLDER WHEEL

For Python 3.12 of Linux on x86-64, with torch, transformers and what usually lies beside them there already; WHEEL is
our own. Versions are those of this environment. `scripts/gpu_check` installs from the folder, without a network.
"""

import argparse
import email
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

MAX_MEGABYTES = 40
_PRESENT_NAMES = """
    accelerate annotated-doc anyio certifi click filelock fsspec h11 httpx huggingface-hub hypothesis jinja2
    markupsafe mpmath multidict numpy packaging pandas peft prometheus-client protobuf psutil pyarrow pytest
    pytest-timeout pytest-xdist pyyaml regex requests rich safetensors sympy tokenizers torch tqdm transformers
    typer typing-extensions typing-inspection xxhash
"""
PRESENT = frozenset(_PRESENT_NAMES.split())
"""Packages that the machine has: neither taken nor followed, but for what a required extra of it adds."""
_EXTRAS = frozenset(("engine", "bench"))
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (35, 34, 31, 28, 27, 24, 17, 12, 5)]
_ENVIRONMENT = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.3",
    "python_version": "3.12",
    "sys_platform": "linux",
}


def missing(requirements: Sequence[str], extras: frozenset[str]) -> Mapping[str, str]:
    """Versions by name of all that these requirements, under such extras, come to there."""
    found: dict[str, str] = {}
    left = [(requirements, extras)]
    while left:
        for name, its_extras in _apply(*left.pop()):
            # Of ours one extra names another.
            if name == "cookhouse":
                left.append((requirements, its_extras))
            elif name in PRESENT:
                # It is there without what only an extra of it requires.
                plain = {each for each, _ in _apply(metadata.requires(name) or [], frozenset())}
                extra = [text for text in metadata.requires(name) or [] if _name(text) not in plain]
                left.append((extra, its_extras))
            elif name not in found:
                found[name] = metadata.version(name)
                left.append((metadata.requires(name) or [], its_extras))
    return dict(sorted(found.items()))


def _apply(requirements: Sequence[str], extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in requirements:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate(_ENVIRONMENT | {"extra": extra}) for extra in ("", *extras)):
            yield _name(text), frozenset(requirement.extras)


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def make_folder(folder: Path, ours: Path) -> Mapping[str, str]:
    """Versions by name of what it then holds."""
    pins = [f"{name}=={version}" for name, version in missing(_requirements(ours), _EXTRAS).items()]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.12", "--implementation=cp", f"--dest={folder}"]
    subprocess.run([*command, *(f"--platform={each}" for each in _PLATFORMS), *pins], check=True)
    shutil.copy(ours, folder)
    held = {str(name): str(version) for name, version, *_ in map(parse_wheel_filename, names(folder))}
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    contents = {"commit": git.stdout.strip(), "versions": held}
    (folder / "contents.json").write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    return held


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(file)).get_all("Requires-Dist") or []


def names(folder: Path) -> list[str]:
    """File names of the wheels."""
    return sorted(path.name for path in folder.glob("*.whl"))


def main() -> None:
    """Make it, and list it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheel", type=Path, help="our own, for Linux on x86-64")
    options = parser.parse_args()
    versions = make_folder(options.folder, options.wheel)
    sizes = {name: (options.folder / name).stat().st_size / 1e6 for name in names(options.folder)}
    for (name, version), megabytes in zip(versions.items(), sizes.values(), strict=True):
        print(f"{name:28} {version:16} {megabytes:6.1f} MB")
    total = sum(sizes.values())
    print(f"{len(sizes)} wheels, {total:.1f} MB, in {options.folder}")
    if total > MAX_MEGABYTES:
        sys.exit(f"error: that is more than the {MAX_MEGABYTES} MB that are carried to such a machine")


if __name__ == "__main__":
    main()
