"""What servers that ended left in a folder of checkpoints: deleted where it was never finished, else put aside."""

import logging
import shutil
import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from cookhouse.server.store.private import private_folder

HEX = "[0-9a-f]" * 32
_log = logging.getLogger(__name__)
_ASIDE = "checkpoints-put-aside"
_UNFINISHED = f".{HEX}"
"""What `unfinished` calls a checkpoint that is none yet."""
_UNWRITTEN = f".{_UNFINISHED}.{HEX}", f".{HEX}.{HEX}"
"""What `new_folder` of the engine calls one of these that it has not finished, and any other."""


def unfinished(folder: Path) -> Path:
    """Where a new checkpoint may be written, in a folder of them."""
    return folder / f".{uuid.uuid4().hex}"


def delete_unfinished(there: Iterable[Path]) -> None:
    """Delete what a server that died while it saved has left."""
    for path in [path for path in there if any(map(path.match, (_UNFINISHED, *_UNWRITTEN)))]:
        try:
            shutil.rmtree(path)
        except OSError as error:
            _log.warning("%s, a checkpoint that was never finished, cannot be deleted: %s", path, error)


def put_aside(folder: Path, strays: Sequence[Path]) -> None:
    """Move folders without a row out of a folder of checkpoints, and say how to get them back."""
    if not strays:
        return
    aside = folder.parent / _ASIDE
    try:
        private_folder(aside)
        for path in strays:
            path.rename(aside / (f"{path.name}.{uuid.uuid4().hex}" if (aside / path.name).exists() else path.name))
    except OSError as error:
        _log.warning("%s has folders that are not in the database, which stay there: %s", folder, error)
        return
    _log.warning(
        "%d folders in %s are not in the database (which was lost or replaced, or the server died while it saved) "
        "and were put aside in %s. To have them back, stop the server, put the database that knows them in place "
        "of server.db and move them into %s again; or, without that database, make each a checkpoint with "
        "`cookhouse checkpoints import FOLDER --state-dir %s`",
        len(strays),
        folder,
        aside,
        folder,
        folder.parent,
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
