"""Files of a folder, part by part: to an actor, and from one."""

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from cookhouse.engine.contract import CanceledError, DamagedError
from cookhouse.engine.transports.ray.object_cache import PART_BYTES, ObjectCache
from cookhouse.engine.transports.ray.worker_files import MAX_FILE_BYTES, Sums, checked_name
from cookhouse.engine.worker.folders import file_sizes
from cookhouse.errors import InputError
from cookhouse.files import make_folder

_MAX_UNDER_WAY = 2
"""Parts of a file that are on their way at a time: one is sent while the next is read."""


def send_folder(actor: Any, objects: ObjectCache, here: Path, there: str, is_unwanted: threading.Event) -> None:
    """Send a folder's files to one of an actor's, and see that they are there as they were sent.

    Raises:
        CanceledError: meanwhile nobody wants them any more.
        DamagedError: there is no such folder.
        OSError: they cannot be read or written.
        RayError: the actor is out of reach, or Ray has no room for them.
    """
    if not here.is_dir():
        raise DamagedError(f"there is no checkpoint {here}")
    under_way: deque[Any] = deque()
    sums: dict[str, Sums] = {name: [] for name in file_sizes(here)}
    for name, of_file in sums.items():
        for part in objects.parts(here / name):
            if is_unwanted.is_set():
                raise CanceledError(f"the files of {here} are not wanted any more")
            of_file.append(part.sums)
            under_way.append(actor.write.remote(f"{there}/{name}", part.offset, part.reference))
            if len(under_way) >= _MAX_UNDER_WAY:
                ray.get(under_way.popleft())
    while under_way:
        ray.get(under_way.popleft())
    if ray.get(actor.sums.remote(there, PART_BYTES)) != sums:
        raise OSError(f"the files of {here} are not at the worker as they were sent")


def bring_files(actor: Any, there: str, sizes: Mapping[str, int], folder: Path) -> None:
    """Bring files of a folder of an actor's, whose sizes are known by name. Raises as `send_folder`, and InputError."""
    for name, num_bytes in sizes.items():
        _bring_file(actor, f"{there}/{name}", num_bytes, folder / checked_name(name))


def _bring_file(actor: Any, name: str, num_bytes: int, path: Path) -> None:
    if num_bytes > MAX_FILE_BYTES:
        raise InputError(f"{name} has {num_bytes:,} bytes; a file may have {MAX_FILE_BYTES:,}")
    make_folder(path.parent, exist_ok=True)
    offsets = deque(range(0, num_bytes, PART_BYTES))
    under_way: deque[Any] = deque()
    with path.open("wb") as file:
        while offsets or under_way:
            while offsets and len(under_way) < _MAX_UNDER_WAY:
                under_way.append(actor.read.remote(name, offsets.popleft(), PART_BYTES))
            file.write(ray.get(under_way.popleft()))
    if path.stat().st_size != num_bytes:
        raise OSError(f"{name} came with {path.stat().st_size:,} bytes of {num_bytes:,}")
