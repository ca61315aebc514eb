"""Files of workers that have ended: folders that they were writing, and those of their own.

Each writing has a folder of its own name, so that what is deleted here is never what another worker writes.
"""

import logging
import shutil
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import Url
from cookhouse.engine.contract.urls import shared_folder
from cookhouse.engine.files.new_folder import unfinished_of

_log = logging.getLogger(__name__)


def delete_written(urls: Collection[Url]) -> None:
    """Delete what a worker has written, whole or in part, and was not asked for any more."""
    for folder in filter(None, map(shared_folder, urls)):
        for path in (folder, *unfinished_of(folder)):
            delete(path)


def delete(folder: Path) -> None:
    """Delete a folder, or what another thread that deletes it has left; one that is not there is left alone."""
    going = folder.with_name(f".{uuid.uuid4().hex}.deleted")
    try:
        folder.rename(going)
    except FileNotFoundError:
        return
    except OSError as error:
        _cannot_delete(None, folder, (None, error))
        return
    shutil.rmtree(going, onerror=_cannot_delete)


def _cannot_delete(_function: Any, path: object, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        _log.warning("%s, left by a worker, cannot be deleted, and will be at the next start: %s", path, error[1])
