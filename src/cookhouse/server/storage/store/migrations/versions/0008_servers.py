"""Servers that share a database, and which of them holds a session."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("server_id", sa.String))
    op.create_index("ix_sessions_server_id", "sessions", ["server_id"])
    op.create_table(
        "servers",
        sa.Column("server_id", sa.String, primary_key=True),
        sa.Column("url", sa.String, nullable=False),
        sa.Column("heard_at", sa.Float, nullable=False),
        sa.Column("is_leaving", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "copies",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("idempotency_key", sa.String, primary_key=True),
        sa.Column("server_id", sa.String, nullable=False),
        sa.Column("checkpoint_id", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
    )
