"""A checkpoint of a state folder: one that lies there, and one to be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cookhouse.engine.contract import LoraSpec
from cookhouse.server.checkpoints.encryption import Recipients
from cookhouse.server.store.rows import CheckpointKind, CheckpointRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """What a state folder knows of a checkpoint, and where its files are."""

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
