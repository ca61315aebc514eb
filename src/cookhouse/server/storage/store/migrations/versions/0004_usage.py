"""Usage of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False, index=True),
        sa.Column("trained_tokens", sa.Integer, nullable=False),
        sa.Column("scored_tokens", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("sampled_tokens", sa.Integer, nullable=False),
        sa.Column("engine_seconds", sa.Float, nullable=False),
    )
