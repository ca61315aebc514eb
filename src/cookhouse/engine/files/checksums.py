"""SHA-256 of the files of a folder, taken when weights are written and compared before they are read."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from cookhouse.engine.contract import DamagedError


def checksums(folder: Path) -> dict[str, str]:
    """Hexadecimal digest by file name, with / between folders."""
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in sorted(folder.rglob("*")) if file.is_file()}


def verify(folder: Path, sha256: Mapping[str, str] | None) -> None:
    """Compare a folder with the digests of its files; None compares nothing.

    Raises:
        DamagedError: a file is missing, or is not what it was.
    """
    for name, expected in (sha256 or {}).items():
        try:
            found = _sha256(folder / name)
        except OSError as error:
            raise DamagedError(f"{folder / name} cannot be read: {error.strerror}") from error
        if found != expected:
            raise DamagedError(
                f"{folder / name} has changed since it was saved: its SHA-256 is {found}, not {expected}"
            )


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
