"""Checksums of the rows that live sessions are restored from: of the columns that never change, and of the order in
which requests have run. Databases report a page that cannot be one, and not of a value that is another.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cookhouse.server.storage.store.failures import damaged
from cookhouse.server.storage.store.rows import FINISHED, CheckpointRow, RecordingRow, RunRow, SamplerRow, SessionRow
from cookhouse.server.storage.store.tables import (
    RECORDS,
    AnswerRecord,
    Base,
    EntryRecord,
    RecordingRecord,
    RunRecord,
    SamplerRecord,
    SessionRecord,
    StateRecord,
)

_FIXED: Mapping[type[Base], tuple[str, ...]] = {
    AnswerRecord: ("request_id", "session_id", "owner", "kind", "media_type", "status", "is_failure"),
    EntryRecord: (
        "request_id",
        "model_id",
        "session_id",
        "owner",
        "seq_id",
        "kind",
        "position",
        "drawn",
        "num_bytes",
        "encoding",
        "accepted_at",
    ),
    RecordingRecord: (
        "sequence_id",
        "session_id",
        "owner",
        "created_at",
        "num_prompt_tokens",
        "prompt_sha256",
        "num_bytes",
        "content",
    ),
    RunRecord: ("model_id", "session_id", "owner", "base_model", "lora", "created_at", "model_seq_id"),
    SamplerRecord: (
        "sampler_id",
        "session_id",
        "owner",
        "base_model",
        "model_path",
        "created_at",
        "seq_id",
        "snapshot_id",
        "lora",
    ),
    SessionRecord: ("session_id", "owner", "created_at", "idempotency_key"),
    StateRecord: (
        "model_id",
        "session_id",
        "state_id",
        "num_bytes",
        "seen",
        "last_checkpoint",
        "created_at",
        "sha256",
    ),
}


def to_json(value: Any) -> str:
    """As clients are answered. Numbers that JSON does not have, which some databases refuse, become null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def row_sum(record: type[Base], values: Mapping[str, Any]) -> dict[str, int]:
    """The column with the checksum of a new row; none for tables that have none."""
    if record not in _FIXED:
        return {}
    return {"row_crc": _crc(*(values[name] for name in _FIXED[record]))}


def order_sum(request_id: str, run_index: int) -> int:
    """Of the place among the requests that have run."""
    return _crc(request_id, run_index)


def check_row(row: Base) -> None:
    """Raises StorageError: it is not what was written. One of a version that kept no checksums is taken as it is."""
    found = getattr(row, "row_crc", None)
    if found is None or (isinstance(row, EntryRecord) and row.kind == FINISHED):  # of which nothing runs again
        return
    is_whole = found == _crc(*(getattr(row, name) for name in _FIXED[type(row)]))
    if isinstance(row, EntryRecord) and row.run_crc is not None:
        is_placed = row.run_index is not None and row.run_crc == order_sum(row.request_id, row.run_index)
        is_whole = is_whole and is_placed
    if not is_whole:
        key = getattr(row, _FIXED[type(row)][0])
        raise damaged(
            f"the row of {key!r} in {row.__tablename__} is not what was written",
            "stop the service and put a backup in its place",
        )


def add_new(session: Session, row: SessionRow | RunRow | SamplerRow | RecordingRow | CheckpointRow) -> None:
    """Insert a row; one whose key is there already is left as it is."""
    values = asdict(row)
    record = RECORDS[type(row)](**values, **row_sum(RECORDS[type(row)], values))
    if session.get(type(record), sa.inspect(type(record)).primary_key_from_instance(record)) is None:
        session.add(record)


def _crc(*values: Any) -> int:
    # As every database gives it back: a number may be an integer or not.
    numbers = [float(value).hex() if isinstance(value, int | float) else value for value in values]
    return zlib.crc32(to_json([zlib.crc32(one) if isinstance(one, bytes) else one for one in numbers]).encode())
