"""The files of a run in a blob store."""

from pathlib import Path

from cookhouse.blobs import BlobStore, check_key, put_folder
from cookhouse.errors import InputError

_SERVICE, _CHECKPOINTS = "service", "checkpoints"


def run_prefix(folder: Path) -> str:
    """Prefix of the keys of a run: the path of its folder as it was given where that is a key, else its name.

    Raises:
        InputError: the name can be in no key, either.
    """
    try:
        return check_key(folder.as_posix())
    except InputError:
        return check_key(folder.name)


def put_run(folder: Path, blobs: BlobStore) -> None:
    """Put the files of a run, and the checkpoints of its embedded service, but nothing else of that: it has keys.

    Raises:
        InputError, ServiceError: as `BlobStore.put`.
    """
    put_folder(blobs, folder, run_prefix(folder), wanted=_is_of_the_run)


def _is_of_the_run(path: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.parts)
    return not is_hidden and (_SERVICE not in path.parts or _CHECKPOINTS in path.parts)
