"""Sampled sequences, to be trained on."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "recordings",
        sa.Column("sequence_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False, index=True),
        sa.Column("num_prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("prompt_sha256", sa.String, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
