"""The tables as of the newest migration, as classes; `rows` has what they hold as plain data."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from cookhouse.server.storage.store.rows import CheckpointRow, RecordingRow, RunRow, SamplerRow, SessionRow
from cookhouse.server.storage.store.usage import Usage


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {
        bytes: sa.LargeBinary,
        float: sa.Float,
        int: sa.BigInteger,  # sizes and counts outgrow 32 bits, in databases that tell them apart
        dict[str, Any]: sa.JSON(none_as_null=True),
    }


class SummedColumns:
    """A row with a checksum: see `row_sums`."""

    row_crc: Mapped[int | None]


class SessionRecord(SummedColumns, Base):
    __tablename__ = "sessions"

    session_id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(index=True)
    created_at: Mapped[float]
    finished_at: Mapped[float | None]
    display_name: Mapped[str | None]
    user_metadata: Mapped[dict[str, Any]]
    project_id: Mapped[str | None]
    finish_reason: Mapped[str | None]
    finish_detail: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    server_id: Mapped[str | None] = mapped_column(index=True)
    sdk_version: Mapped[str | None]


class RunRecord(SummedColumns, Base):
    __tablename__ = "runs"

    model_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    owner: Mapped[str] = mapped_column(index=True)
    base_model: Mapped[str]
    lora: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    last_request_at: Mapped[float]
    user_metadata: Mapped[dict[str, Any]]
    model_seq_id: Mapped[int | None]


class SamplerRecord(SummedColumns, Base):
    __tablename__ = "samplers"

    sampler_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    owner: Mapped[str]
    base_model: Mapped[str]
    model_path: Mapped[str | None]
    created_at: Mapped[float]
    seq_id: Mapped[int | None]
    snapshot_id: Mapped[str | None]
    lora: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    has_file: Mapped[bool] = mapped_column(server_default=sa.false())
    sha256: Mapped[dict[str, Any] | None]


class RecordingRecord(SummedColumns, Base):
    """A sampled sequence, while it may be trained on."""

    __tablename__ = "recordings"

    sequence_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    owner: Mapped[str]
    created_at: Mapped[float] = mapped_column(index=True)
    num_prompt_tokens: Mapped[int]
    prompt_sha256: Mapped[str]
    num_bytes: Mapped[int]
    content: Mapped[bytes]


class CheckpointRecord(Base):
    __tablename__ = "checkpoints"
    __table_args__ = (sa.UniqueConstraint("model_id", "kind", "name"),)

    checkpoint_id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str]
    kind: Mapped[str]
    name: Mapped[str]
    owner: Mapped[str] = mapped_column(index=True)
    base_model: Mapped[str]
    lora: Mapped[dict[str, Any]]
    has_optimizer: Mapped[bool]
    size_bytes: Mapped[int]
    created_at: Mapped[float]
    expires_at: Mapped[float | None] = mapped_column(index=True)
    user_metadata: Mapped[dict[str, Any]]
    sha256: Mapped[dict[str, Any] | None]
    is_public: Mapped[bool] = mapped_column(server_default=sa.false())


class UsageRecord(Base):
    """Of one session, kept when that has ended; the amounts are those of `Usage`."""

    __tablename__ = "usage"

    session_id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(index=True)
    trained_tokens: Mapped[int]
    scored_tokens: Mapped[int]
    prompt_tokens: Mapped[int]
    sampled_tokens: Mapped[int]
    engine_seconds: Mapped[float]


class BodyColumns:
    """A body: in the row, or where it lies in a segment."""

    segment: Mapped[str | None] = mapped_column(index=True)
    body_offset: Mapped[int | None]
    num_body_bytes: Mapped[int]
    body_crc: Mapped[int]
    """CRC-32 of these bytes."""
    body: Mapped[bytes | None] = mapped_column(deferred=True)


class EntryRecord(BodyColumns, SummedColumns, Base):
    """A request that was accepted, until a state covers it."""

    __tablename__ = "entries"

    request_id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str]
    session_id: Mapped[str] = mapped_column(index=True)
    owner: Mapped[str]
    seq_id: Mapped[int | None]
    kind: Mapped[str]
    position: Mapped[int]
    run_index: Mapped[int | None]
    run_crc: Mapped[int | None]
    drawn: Mapped[dict[str, Any]]
    num_bytes: Mapped[int]
    encoding: Mapped[str]
    accepted_at: Mapped[float]


class AnswerRecord(BodyColumns, SummedColumns, Base):
    """Answer of a request, as long as it may be asked for and no entry would give it again."""

    __tablename__ = "answers"

    request_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    owner: Mapped[str]
    kind: Mapped[str]
    media_type: Mapped[str]
    status: Mapped[int]
    is_failure: Mapped[bool]


class StateRecord(SummedColumns, Base):
    """The newest state of a model."""

    __tablename__ = "states"

    model_id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(index=True)
    state_id: Mapped[str]
    num_bytes: Mapped[int]
    seen: Mapped[dict[str, Any]]
    last_checkpoint: Mapped[str | None]
    created_at: Mapped[float]
    sha256: Mapped[dict[str, Any] | None]


class ServerRecord(Base):
    """A server that shares the database with others, as long as it writes its beats."""

    __tablename__ = "servers"

    server_id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    heard_at: Mapped[float]
    """Seconds since the epoch, by the database's clock."""
    is_leaving: Mapped[bool] = mapped_column(server_default=sa.false())
    journal: Mapped[str | None]
    """Where it keeps what the others read too; None: an older version, which does not say."""
    checkpoints: Mapped[str | None]
    base_models: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))


class ServiceRecord(Base):
    """Facts about the service, the same at every server: see `identity`."""

    __tablename__ = "service"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class SecretRecord(Base):
    """Secret that servers that share the database sign with."""

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[bytes]


class CopyRecord(Base):
    """A copy of a checkpoint that a request asked for, by what its client calls the request."""

    __tablename__ = "copies"

    owner: Mapped[str] = mapped_column(primary_key=True)
    idempotency_key: Mapped[str] = mapped_column(primary_key=True)
    server_id: Mapped[str]
    """Who makes it."""
    checkpoint_id: Mapped[str | None]
    """None until it is made."""
    created_at: Mapped[float]


Row = TypeVar("Row", SessionRow, RunRow, SamplerRow, RecordingRow, CheckpointRow, Usage)
RECORDS: Mapping[type[Any], type[Base]] = {
    SessionRow: SessionRecord,
    RunRow: RunRecord,
    SamplerRow: SamplerRecord,
    RecordingRow: RecordingRecord,
    CheckpointRow: CheckpointRecord,
}


@cache
def rows_of(kind: type[Any]) -> sa.Select[Any]:
    """A query for what makes rows of a kind: values, which are read in half the time of records."""
    return sa.select(*(getattr(RECORDS[kind], field.name) for field in fields(kind)))


def from_record(kind: type[Row], record: Base) -> Row:
    """Fields of a record, as plain data."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(kind)})
