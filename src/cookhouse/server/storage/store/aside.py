"""Files that lie in a folder of the server's and are not in its database: moved out of it, never deleted."""

import logging
import uuid
from collections.abc import Sequence
from pathlib import Path

from cookhouse.server.storage.store.private import private_folder

_log = logging.getLogger(__name__)
SUFFIX = "-put-aside"


def put_aside(folder: Path, strays: Sequence[Path], or_else: str = "") -> None:
    """Move files and folders into one next to the folder that they lie in, and say how to get them back; `or_else` is
    another way, in words.
    """
    if not strays:
        return
    aside = folder.with_name(folder.name + SUFFIX)
    try:
        private_folder(aside)
        for path in strays:
            path.rename(aside / (f"{path.name}.{uuid.uuid4().hex}" if (aside / path.name).exists() else path.name))
    except OSError as error:
        _log.warning("%s has files that are not in the database, which stay there: %s", folder, error)
        return
    _log.warning(
        "%d files or folders in %s are not in the database (which was lost or replaced, or the server died while it "
        "saved) and were put aside in %s. To have them back, stop the server, put the database that knows them in "
        "place of this one and move them into %s again%s",
        len(strays),
        folder,
        aside,
        folder,
        or_else,
    )
