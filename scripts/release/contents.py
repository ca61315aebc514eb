"""What has to be in the packages of a release, and what must not be."""

import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from cookhouse.engine.instructions import TARGETS

MOST_BYTES = 12 * 10**6
"""Of one package. The index takes 100 MB; whoever installs waits for every one of them."""
_KERNELS = frozenset(
    f"cookhouse/engine/kernels/cpu/{folder}prebuilt/{name}-{target.name}.so"
    for folder, name in (("", "train"), ("decode/", "decode"))
    for target in TARGETS
)
_FOREIGN = ("tests/", "bench/", "scripts/", "docs/", "examples/")


def faults(package: Path, sources: Collection[str]) -> Iterator[str]:
    """What is wrong with a wheel or a source distribution, in words. `sources` are all files of `cookhouse`."""
    names = _names(package)
    for name in sorted(set(sources) - names):
        yield f"{package.name} has no {name}"
    for name in sorted(names):
        if name.startswith(_FOREIGN) or name.endswith(".pyc"):
            yield f"{package.name} has {name}, which is no part of what is installed"
    libraries = {name for name in names if ".so" in Path(name).suffixes}
    wanted = _KERNELS if package.name.endswith("x86_64.whl") else frozenset()
    if libraries != wanted:
        yield f"{package.name} has other libraries than it should: {', '.join(sorted(libraries ^ wanted))}"
    if (size := package.stat().st_size) > MOST_BYTES:
        yield f"{package.name} is of {size / 1e6:.1f} MB; a release has at most {MOST_BYTES / 1e6:.0f} MB"


def _names(package: Path) -> set[str]:
    """As they are in a wheel."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(package) as source:
        files = (member.name.partition("/")[2] for member in source if member.isfile())
        return {name.removeprefix("src/") for name in files}
