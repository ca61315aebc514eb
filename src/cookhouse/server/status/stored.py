"""Figures from the disk and the database. Blocking, for threads."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cookhouse.engine.host_memory import available_bytes, resident_bytes
from cookhouse.server.leases.members import Member
from cookhouse.server.service import Service
from cookhouse.server.status.viewer import Viewer
from cookhouse.server.storage.store.rows import CheckpointRow, SessionRow

MAX_ROWS = 200
_MAX_FILES = 10_000
_DATABASE = ("server.db", "server.db-wal")
_JOURNAL = ("journal", "states", "samplers", "loads")
"""Folders of the state folder that live sessions need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    resident_bytes: int | None
    """Of the server's process."""
    available_bytes: int
    """Memory that the machine, or the container, has left."""
    disk_bytes: int
    disk_free_bytes: int
    database_bytes: int | None
    """None: the rows lie in another database."""
    journal_bytes: Mapping[str, int | None]
    """By folder; None: it has too many files to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Part of the store that one viewer may see."""

    checkpoints: Sequence[CheckpointRow]
    """The newest."""
    sessions: Mapping[str, SessionRow]
    """The live ones, by id."""


def read_machine(state_dir: Path) -> Machine:
    usage = shutil.disk_usage(state_dir)
    database = [state_dir / name for name in _DATABASE]
    return Machine(
        resident_bytes=resident_bytes(),
        available_bytes=available_bytes(),
        disk_bytes=usage.total,
        disk_free_bytes=usage.free,
        database_bytes=sum(_size(file) for file in database) if database[0].exists() else None,
        journal_bytes={name: _folder_bytes(state_dir / name) for name in _JOURNAL},
    )


def read_totals(service: Service) -> Mapping[str, tuple[int, int]]:
    """Number and bytes of checkpoints, by owner."""
    return service.storage.store.checkpoint_totals()


def read_listed(service: Service, viewer: Viewer) -> Listed:
    live = [session.session_id for session in service.sessions if viewer.sees(session.owner)]
    return Listed(
        checkpoints=service.storage.store.newest_checkpoints(
            None if viewer.is_operator else viewer.owner, limit=MAX_ROWS
        ),
        sessions=service.storage.store.sessions_with_ids(live[-MAX_ROWS:]),
    )


def read_servers(service: Service) -> Sequence[Member] | None:
    """Servers that share the sessions; None: this is the only one."""
    return None if service.leases is None else service.leases.members.counted()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _folder_bytes(folder: Path) -> int | None:
    """Of the files in a folder, and in its folders; those that go meanwhile count as they did."""
    total, left = 0, _MAX_FILES
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        total += _size(Path(entry.path))
        except FileNotFoundError:
            continue
    return total
