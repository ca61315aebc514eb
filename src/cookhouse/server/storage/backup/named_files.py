"""Files of a state folder that its database names, and a copy of one of them.

Each is written once, before a row names it (but for `loads`), and deleted after that row; a folder is renamed first.
"""

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.checksums import verify
from cookhouse.server.storage.checkpoints.state_folder import CHECKPOINTS
from cookhouse.server.storage.journal import DamagedBodyError, SegmentFiles
from cookhouse.server.storage.journal.segments import Place
from cookhouse.server.storage.store.store import Store
from cookhouse.server.storage.store.tables import (
    AnswerRecord,
    CheckpointRecord,
    EntryRecord,
    SamplerRecord,
    StateRecord,
)

_CANNOT_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


_JOURNAL = "journal"
_LOAD = EntryRecord.kind == "load_weights"
_FOLDERS: Mapping[str, sa.Select[Any]] = {
    "states": sa.select(StateRecord.state_id, StateRecord.sha256),
    "loads": sa.select(EntryRecord.drawn["id"].as_string(), EntryRecord.drawn["checkpoint"]["sha256"]).where(_LOAD),
    "samplers": sa.select(SamplerRecord.snapshot_id, SamplerRecord.sha256).where(SamplerRecord.has_file),
    CHECKPOINTS: sa.select(CheckpointRecord.checkpoint_id, CheckpointRecord.sha256),
}
"""What asks for the names in each folder of a state folder, and for the digests of their files."""
_PLACES = sa.union_all(
    *(
        sa.select(record.segment, record.body_offset, record.num_body_bytes, record.body_crc).where(
            record.segment.is_not(None)
        )
        for record in (EntryRecord, AnswerRecord)
    )
)
Written = Mapping[str, str] | Sequence[Place] | None
"""What was written: digests of a folder's files, or what lies where in a segment; None: nobody knows."""


def named_files(store: Store) -> dict[str, Written]:
    """Paths, below the state folder, of all files and folders that a database names, with what they have to hold. What
    is deleted soonest stands first.
    """
    places: defaultdict[str, list[Place]] = defaultdict(list)
    named: dict[str, Written] = {}
    with store.database.reading() as session:
        for segment, offset, num_bytes, crc in session.execute(_PLACES):
            assert segment is not None
            places[segment].append(Place(segment=segment, offset=offset, num_bytes=num_bytes, crc=crc))
        named |= {f"{_JOURNAL}/{segment}": places[segment] for segment in sorted(places)}
        for folder, names in _FOLDERS.items():
            digests = {f"{folder}/{name}": sha256 for name, sha256 in session.execute(names)}
            named |= {path: digests[path] for path in sorted(digests)}
    return named


def damage_of(state_dir: Path, path: str, written: Written) -> str | None:
    """Why what a database names is not what was written; None: it is, or nobody knows."""
    try:
        if isinstance(written, Sequence):
            segments = SegmentFiles((state_dir / _JOURNAL).absolute().as_uri())
            for place in written:
                segments.read(place, None)
        else:
            verify(state_dir / path, written)
    except (DamagedError, DamagedBodyError) as error:
        return str(error)
    return None


def is_segment(path: str) -> bool:
    """True if it is one of the journal's, which may lie in another folder."""
    return path.startswith(f"{_JOURNAL}/")


def is_made_later(path: str) -> bool:
    """True if a row may name it before it is there."""
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


def copy_segment(segments: SegmentFiles, target: Path) -> bool:
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
