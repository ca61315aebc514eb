"""`back_up`: the database first, then the files that this copy of it names.

server.db ── SQLite's backup ──► copy ── names ──► files, linked or copied ── one has gone? ──► again, what is new
"""

import errno
import os
import shutil
import sqlite3
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from cookhouse.engine.contract import DamagedError
from cookhouse.engine.files.checksums import verify
from cookhouse.errors import InputError, ServiceError
from cookhouse.files import sync
from cookhouse.server.storage.checkpoints.state_folder import CHECKPOINTS
from cookhouse.server.storage.journal import DamagedBodyError, SegmentFiles
from cookhouse.server.storage.journal.segments import Place
from cookhouse.server.storage.store.identity import ID_FILE
from cookhouse.server.storage.store.private import SALT_FILE
from cookhouse.server.storage.store.sqlite import copy_database
from cookhouse.server.storage.store.state_dir import DATABASE, is_state_dir
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
_MAX_TRIES = 20
_PAUSE_SECONDS = 1.0
"""Before the database is copied again: what is being deleted takes a moment to lose its row."""
_SAY_SECONDS = 5.0


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


Say = Callable[[str], None]

_UNNAMED = ("api-key", ID_FILE, SALT_FILE)
"""Files that no row names. The key says whose the checkpoints are, the salt what tenants are called in metrics."""


def back_up(state_dir: Path, folder: Path, *, journal: str | None = None, say: Say) -> Sequence[str]:
    """Copy a state folder, whose server may be running, to a new folder, whole or not at all.

    Files that never change are linked where both folders lie on one file system. `journal` is the URL of the journal's
    segments where they lie in another place: the copy has them, too. `say` reports how far it is, and what of it is not
    as it was written, which is copied all the same.

    Returns what the database names and the state folder has lost, so that the copy lacks it, too: paths below it.

    Raises:
        InputError: there is no state folder, or the new one is not empty, lies within it, or cannot be written.
        ServiceError: the database is damaged or locked, or files went faster than they could be copied.
    """
    _check(state_dir, folder)
    say_now_and_then = _now_and_then(say)
    segments = None if journal is None else SegmentFiles(journal)
    with _new_folder(folder) as copy:
        for name in _UNNAMED:
            if (state_dir / name).is_file():
                copy_file(state_dir / name, copy / name)
        lost: set[str] = set()
        damaged: dict[str, str] = {}
        for _ in range(_MAX_TRIES):
            lost_before, lost = lost, _copy_once(state_dir, copy, segments, damaged, say_now_and_then)
            if lost <= lost_before:
                for path, why in damaged.items():
                    say(f"{state_dir / path} is damaged, and so is its copy: {why}")
                return sorted(name for name in lost if not is_made_later(name))
            time.sleep(_PAUSE_SECONDS)
        raise ServiceError(
            f"files of {state_dir} went faster than they could be copied, {_MAX_TRIES} times in a row; try again, or "
            "stop the server meanwhile"
        )


def _check(state_dir: Path, folder: Path) -> None:
    if not is_state_dir(state_dir):
        raise InputError(f"{state_dir} is not the state folder of a server: it has no {DATABASE}; pass --state-dir")
    if folder.resolve().is_relative_to(state_dir.resolve()):
        raise InputError(f"{folder} lies within the state folder; name a folder elsewhere, best on another disk")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; name a new one")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, under a temporary name; leaving flushes it to the disk and renames it to `folder`."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        temporary.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise InputError(
            f"the backup cannot be made: {error.strerror}: {error.filename}; free space, or name another folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_once(
    state_dir: Path, copy: Path, segments: SegmentFiles | None, damaged: dict[str, str], say: Say
) -> set[str]:
    """Copy the database, and what it names that has not been copied yet. Returns what is not there; what is `damaged`
    is kept there.
    """
    for file in copy.glob(f"{DATABASE}*"):
        file.unlink()
    try:
        copy_database(
            state_dir / DATABASE, copy / DATABASE, lambda done, pages: say(f"copying: {done} of {pages} pages of rows")
        )
    except sqlite3.Error as error:
        raise ServiceError(f"{state_dir / DATABASE} cannot be backed up: {error}; try again") from error
    with closing(Store(copy / DATABASE)) as store:
        if (damage := store.damage()) is not None:
            raise ServiceError(f"{state_dir / DATABASE} cannot be backed up: {damage}")
        named = named_files(store)
    for path in copy.glob("*/*"):  # of an earlier try
        if path.relative_to(copy).as_posix() not in named:
            damaged.pop(path.relative_to(copy).as_posix(), None)
            remove(path)
    missing = set()
    for number, (name, written) in enumerate(named.items()):
        say(f"copying: {number} of {len(named)} files and folders")
        if (copy / name).exists():
            continue
        if segments is not None and is_segment(name):
            is_copied = copy_segment(segments, copy / name)
        else:
            is_copied = copy_named(state_dir / name, copy / name)
        if not is_copied:
            missing.add(name)
        elif (why := damage_of(copy, name, written)) is not None:
            damaged[name] = why
    return missing


def _now_and_then(say: Say) -> Say:
    """Leaves out what comes within five seconds."""
    said_at = time.monotonic()

    def say_sometimes(text: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _SAY_SECONDS:
            said_at = time.monotonic()
            say(text)

    return say_sometimes
