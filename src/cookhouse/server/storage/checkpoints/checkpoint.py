"""A checkpoint of a state folder: one that lies there, and one to be written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import LoraSpec
from cookhouse.errors import InputError
from cookhouse.server.refusals import StorageError
from cookhouse.server.storage.checkpoints.encryption import Recipients
from cookhouse.server.storage.store.rows import CheckpointKind, CheckpointRow

_NAME = re.compile(r"[A-Za-z0-9._=+-]{1,200}")
_MIN_TTL_SECONDS, _MAX_TTL_SECONDS = 3600, 10 * 366 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """Record of a checkpoint in a state folder, with the place of its files."""

    row: CheckpointRow
    folder: Path
    run_metadata: Mapping[str, Any] = field(default_factory=dict)
    """What its run's client said of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCheckpoint:
    """A checkpoint to be written, checked by `check`."""

    model_id: str
    kind: CheckpointKind
    name: str | None
    owner: str
    base_model: str
    lora: LoraSpec
    has_optimizer: bool
    ttl_seconds: int | None
    overwrite: bool
    user_metadata: Mapping[str, str]
    recipients: Recipients = ()
    """Whom its files are encrypted to; none: they are not."""


def check_ttl(ttl_seconds: int | None) -> None:
    """Refuse a time to live outside an hour to ten years; None is for ever."""
    if ttl_seconds is not None and not _MIN_TTL_SECONDS <= ttl_seconds <= _MAX_TTL_SECONDS:
        raise InputError(f"ttl_seconds is {ttl_seconds}; allowed are 3600 (an hour) to ten years, or none for ever")


def copy_of(row: CheckpointRow, *, model_id: str, owner: str, ttl_seconds: int | None) -> NewCheckpoint:
    """Record of a copy of a checkpoint, in another run."""
    return NewCheckpoint(
        model_id=model_id,
        kind=row.kind,
        name=row.name,
        owner=owner,
        base_model=row.base_model,
        lora=row.lora_spec,
        has_optimizer=row.has_optimizer,
        ttl_seconds=ttl_seconds,
        overwrite=False,
        user_metadata=row.user_metadata,
    )


def check_name(new: NewCheckpoint) -> str:
    """The name to save under; refuses one that cannot be used, and a time to live as `check_ttl`."""
    if new.name is None or not _NAME.fullmatch(new.name) or new.name in (".", ".."):
        raise InputError(
            f"{new.name!r} cannot name a checkpoint; a name has 1 to 200 letters, digits and any of . _ - = +"
        )
    check_ttl(new.ttl_seconds)
    return new.name


def unwritten(path: str, reason: str) -> StorageError:
    """Error for a checkpoint that the disk has no room for, or that failed otherwise."""
    return StorageError(
        f"{path} could not be written: {reason}; free space on the service's disk, for example by deleting "
        "checkpoints, and save again"
    )
