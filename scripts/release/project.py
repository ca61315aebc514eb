"""What `pyproject.toml` says of the project: its version, and the address that it does not have yet."""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
_NOBODYS = ".invalid"
"""The end of host names that never lead anywhere (https://www.rfc-editor.org/rfc/rfc2606)."""


def repository() -> str | None:
    """The address of the repository; None while `[project.urls]` has a placeholder."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    address: str = urls["Repository"]
    return None if (urlsplit(address).hostname or _NOBODYS).endswith(_NOBODYS) else address


def changes(version: str) -> str:
    """What the changelog says of a version; empty where it has no section of it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    return next((body.strip() for head, _, body in (part.partition("\n") for part in sections) if head == version), "")
