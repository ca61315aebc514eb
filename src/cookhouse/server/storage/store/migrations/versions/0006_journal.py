"""A journal of requests, and what of sessions, runs and samplers is needed to go on with them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("idempotency_key", sa.String))
    op.add_column("runs", sa.Column("model_seq_id", sa.BigInteger))
    op.add_column("samplers", sa.Column("seq_id", sa.BigInteger))
    op.add_column("samplers", sa.Column("snapshot_id", sa.String))
    op.add_column("samplers", sa.Column("lora", sa.JSON(none_as_null=True)))
    op.add_column("samplers", sa.Column("has_file", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "entries",
        sa.Column("request_id", sa.String, primary_key=True),
        sa.Column("model_id", sa.String, nullable=False),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("seq_id", sa.BigInteger),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("run_index", sa.BigInteger),
        sa.Column("drawn", sa.JSON, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("encoding", sa.String, nullable=False),
        sa.Column("accepted_at", sa.Float, nullable=False),
        *_body_columns(),
    )
    op.create_table(
        "answers",
        sa.Column("request_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        sa.Column("status", sa.BigInteger, nullable=False),
        sa.Column("is_failure", sa.Boolean, nullable=False),
        *_body_columns(),
    )
    op.create_table(
        "states",
        sa.Column("model_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("state_id", sa.String, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("seen", sa.JSON, nullable=False),
        sa.Column("last_checkpoint", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
    )


def _body_columns() -> list[sa.Column[object]]:
    """The body last: SQLite reads the others without it."""
    return [
        sa.Column("segment", sa.String, index=True),
        sa.Column("body_offset", sa.BigInteger),
        sa.Column("num_body_bytes", sa.BigInteger, nullable=False),
        sa.Column("body_crc", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary),
    ]
