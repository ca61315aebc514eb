"""Weights as files: their checksum, and whether they are still what was registered."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from cookhouse.errors import InputError
from cookhouse.registry.model import Artifact, ModelVersion


class ArtifactState(StrEnum):
    """State of weights since they were registered."""

    INTACT = "intact"
    CHANGED = "changed"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """On a service whose files nobody here can read."""


def read_artifact(path: str, files: Path | None, told: str | None = None) -> Artifact:
    """Weights at a `tinker://` path or in a folder, with the checksum of their files; where these are not on this
    machine, the one that their service `told`.

    Raises:
        InputError: the files are not there, or cannot be read.
    """
    if files is None:
        return Artifact(path=path, sha256=told)
    whole = str(files.resolve())
    return Artifact(path=path if "://" in path else whole, files=whole, sha256=folder_sha256(files))


def folder_sha256(folder: Path) -> str:
    """SHA-256 over the files of a folder: over a line for each, `DIGEST  NAME`, in the order of their names.

    That is what `sha256sum` prints for them. Links to folders are not followed.

    Raises:
        InputError: it is no folder, holds no files, or one cannot be read.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of weights")
    digests = {}
    try:
        for name in _files(folder):
            with (folder / name).open("rb") as content:
                digests[name] = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    if not digests:
        raise InputError(f"{folder} holds no files; name a folder of weights")
    return sha256_of_digests(digests)


def sha256_of_digests(digests: Mapping[str, str]) -> str:
    """`folder_sha256` of a folder whose files have these SHA-256, by name."""
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _files(folder: Path) -> Iterator[str]:
    """Names of what can be read to its end, with / between folders."""
    for here, _, names in os.walk(folder):
        yield from (
            (Path(here) / name).relative_to(folder).as_posix() for name in names if (Path(here) / name).is_file()
        )


def artifact_state(artifact: Artifact) -> ArtifactState:
    """State of weights. Raises `InputError` where their files are there and cannot be read."""
    if artifact.files is None:
        return ArtifactState.ELSEWHERE
    folder = Path(artifact.files)
    if not folder.is_dir() or not any(_files(folder)):
        return ArtifactState.GONE
    return ArtifactState.INTACT if folder_sha256(folder) == artifact.sha256 else ArtifactState.CHANGED


def check_artifact(version: ModelVersion, artifact: Artifact) -> None:
    """Refuse weights of a version that are not what was registered, so that nobody trains on others under its name.

    Raises:
        InputError: their files have changed, or are gone.
    """
    match artifact_state(artifact):
        case ArtifactState.CHANGED:
            raise InputError(
                f"the weights of {version.id} have changed since they were registered: the files in {artifact.files} "
                f"no longer have the SHA-256 {str(artifact.sha256)[:12]}…; restore them, or register them again"
            )
        case ArtifactState.GONE:
            raise InputError(
                f"the weights of {version.id} are gone: there are no files in {artifact.files}; restore it, or "
                "name another version"
            )
