"""Which files of a state folder its database names, and a copy of one of them.

Each is written once, before a row names it (but for `loads`), and deleted after that row; a folder is renamed first.
"""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import sqlalchemy as sa

from cookhouse.server.checkpoints.state_folder import CHECKPOINTS
from cookhouse.server.journal import Segments
from cookhouse.server.journal.steps import NAMED_SEGMENTS
from cookhouse.server.store.store import Store
from cookhouse.server.store.tables import CheckpointRecord, EntryRecord, SamplerRecord, StateRecord

_CANNOT_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


_JOURNAL = "journal"
_KINDS: Mapping[str, sa.Executable] = {
    _JOURNAL: NAMED_SEGMENTS,
    "states": sa.select(StateRecord.state_id),
    "loads": sa.select(EntryRecord.drawn["id"].as_string()).where(EntryRecord.kind == "load_weights"),
    "samplers": sa.select(SamplerRecord.snapshot_id).where(SamplerRecord.has_file),
    CHECKPOINTS: sa.select(CheckpointRecord.checkpoint_id),
}
"""What asks for the names in each folder of a state folder. What is deleted soonest stands first."""


def named_files(store: Store) -> list[str]:
    """Paths, below the state folder, of all files and folders that a database names."""
    with store.database.reading() as session:
        return [f"{folder}/{name}" for folder, names in _KINDS.items() for name in sorted(session.scalars(names))]


def is_segment(path: str) -> bool:
    """Whether it is one of the journal's, which may lie elsewhere."""
    return path.startswith(f"{_JOURNAL}/")


def is_made_later(path: str) -> bool:
    """Whether a row may name it before it is there."""
    return path.startswith("loads/")


def copy_named(source: Path, target: Path) -> bool:
    """Copy a file or a folder whole, with hard links where the file system can. False: it is not there any more."""
    target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        _copy(source, target)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise
        remove(target)
        return False
    return True


def copy_segment(segments: Segments, target: Path) -> bool:
    """Copy a segment from where the journal keeps them. False: it is not there any more."""
    content = segments.whole(target.name)
    if content is None:
        return False
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with _new_file(target) as out:
        out.write(content)
    return True


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to one that its owner alone can read."""
    with _new_file(target) as out, source.open("rb") as content:
        shutil.copyfileobj(content, out)


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(mode=0o700)
        for path in source.iterdir():
            _copy(path, target / path.name)
        return
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        copy_file(source, target)
