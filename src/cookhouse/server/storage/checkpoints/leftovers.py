"""Leftovers of ended servers in a folder of checkpoints: deleted where never finished, else put aside."""

import logging
import shutil
import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from cookhouse.server.storage.store.aside import put_aside

HEX = "[0-9a-f]" * 32
_log = logging.getLogger(__name__)
_UNFINISHED = f".{HEX}"
"""What `unfinished` calls a checkpoint that is none yet."""
_UNWRITTEN = f".{_UNFINISHED}.{HEX}", f".{HEX}.{HEX}"
"""What `new_folder` of the engine calls one of these that it has not finished, and any other."""


def unfinished(folder: Path) -> Path:
    """Path at which a new checkpoint may be written, in a folder of them."""
    return folder / f".{uuid.uuid4().hex}"


def delete_unfinished(there: Iterable[Path]) -> None:
    """Delete what a server that died while it saved has left."""
    for path in [path for path in there if any(map(path.match, (_UNFINISHED, *_UNWRITTEN)))]:
        try:
            shutil.rmtree(path)
        except OSError as error:
            _log.warning("%s, a checkpoint that was never finished, cannot be deleted: %s", path, error)


def put_aside_unknown(folder: Path, strays: Sequence[Path]) -> None:
    """Move folders without a row out of a folder of checkpoints, and say how to get them back."""
    put_aside(
        folder,
        strays,
        "; or, without that database, make each folder a checkpoint with `cookhouse checkpoints import FOLDER "
        f"--state-dir {folder.parent}`",
    )


def tell_lost(where: str, lost: Collection[str]) -> None:
    """Say which checkpoints have a row, and no files here."""
    if not lost:
        return
    _log.warning(
        "%d checkpoints have no folder in %s and cannot be loaded until it is back, or, where they were saved by a "
        "server with --checkpoints URL, until this one is started with the same: %s",
        len(lost),
        where,
        ", ".join(sorted(lost)),
    )


def tell_local(folder: Path, sizes: Sequence[int], url: str) -> None:
    """Say how many checkpoints, of so many bytes each, lie here, where new ones go to a URL."""
    if sizes:
        what = f"{len(sizes)} checkpoints ({sum(sizes) / 1e6:,.1f} MB)"
        _log.warning("%s lie in %s and stay there; new ones go to %s", what, folder, url)
