"""Extras of this installation: what they need, and the command that adds one. The engine is one of them."""

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cookhouse.errors import InputError

_NAME = "cookhouse"
_FOR_DEVELOPERS = frozenset({"dev", "bench", "docs"})
_UNPINNED = frozenset({"verifiers"})
"""Extras that want other releases than the constraints pin."""
ENGINE_PACKAGES = ("alembic", "fastapi", "prometheus_client", "pyrage", "torch")
"""Modules of the extra `engine` that nothing else of cookhouse needs."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """A part of cookhouse that needs further packages."""

    name: str
    missing: tuple[str, ...]
    """Requirements that this environment does not meet; empty: it can be used."""


def install_command(extra: str) -> str:
    """The command that adds an extra to the environment of this process, as it was installed: from a folder, a file or
    an index (https://packaging.python.org/en/latest/specifications/direct-url/).
    """
    return shlex.join([*installer(), *_requirement(extra)])


def has_engine(packages: Sequence[str] = ENGINE_PACKAGES) -> bool:
    """True if this environment has the engine's packages, or some of them; without, its runs train at a remote
    service.
    """
    return not _not_found(packages)


def require_engine(what: str, packages: Sequence[str] = ENGINE_PACKAGES) -> None:
    """Refuse what only works with the engine's packages, or with some of them.

    Raises:
        InputError: one of them is missing; the message has the command that installs them.
    """
    if missing := _not_found(packages):
        raise InputError(
            f"{what} needs the engine, which is not installed (no {', '.join(missing)}): {install_command('engine')}"
        )


def _not_found(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is None]


def extras() -> list[Extra]:
    """Extras that users have a need for, by name."""
    installed = _installed()
    names = [] if installed is None else installed.metadata.get_all("Provides-Extra") or []
    return [Extra(name=name, missing=_missing(name)) for name in sorted(set(names) - _FOR_DEVELOPERS)]


@cache
def _installed() -> Distribution | None:
    """None: the code was only put on the path."""
    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _missing(extra: str) -> tuple[str, ...]:
    from packaging.requirements import Requirement  # loaded where somebody asks

    installed = _installed()
    every = [Requirement(text) for text in (installed.requires if installed is not None else None) or ()]
    wanted = [each for each in every if each.marker is not None and each.marker.evaluate({"extra": extra})]
    needed = [each for each in wanted if not each.marker or not each.marker.evaluate({"extra": ""})]
    missing = [f"{each.name}{each.specifier}" for each in needed if not _is_met(each.name, str(each.specifier))]
    others = [other for each in needed if each.name == _NAME for other in each.extras]  # extras of ours, in an extra
    return (*missing, *(name for other in others for name in _missing(other)))


def _is_met(name: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet

    try:
        return version(name) in SpecifierSet(specifier, prereleases=True)
    except PackageNotFoundError:
        return False


def installer() -> list[str]:
    if find_spec("pip") is None:  # an environment that uv made
        return ["uv", "pip", "install", "--python", _python()]
    return [_python(), "-m", "pip", "install"]


def _python() -> str:
    """As short as it can be typed here: what `python` finds, where that is this one."""
    return "python" if shutil.which("python") == sys.executable else sys.executable


def _requirement(extra: str) -> list[str]:
    installed = _installed()
    text = None if installed is None else installed.read_text("direct_url.json")
    if text is None:
        return [f"{_NAME}[{extra}]"]
    direct = json.loads(text)
    if not direct.get("dir_info", {}).get("editable"):
        return [f"{_NAME}[{extra}] @ {direct['url']}"]
    folder = Path(unquote(urlsplit(direct["url"]).path))
    pins = folder / "constraints.txt"
    pinned = ["-c", str(pins)] if pins.is_file() and extra not in _UNPINNED else []
    return ["-e", f"{folder}[{extra}]", *pinned]
