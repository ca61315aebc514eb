"""Sessions, runs, samplers and checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False, index=True),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
        sa.Column("display_name", sa.String),
        sa.Column("user_metadata", sa.JSON, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("model_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("owner", sa.String, nullable=False, index=True),
        sa.Column("base_model", sa.String, nullable=False),
        sa.Column("lora", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("last_request_at", sa.Float, nullable=False),
        sa.Column("user_metadata", sa.JSON, nullable=False),
    )
    op.create_table(
        "samplers",
        sa.Column("sampler_id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False, index=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("base_model", sa.String, nullable=False),
        sa.Column("model_path", sa.String),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.String, primary_key=True),
        sa.Column("model_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False, index=True),
        sa.Column("base_model", sa.String, nullable=False),
        sa.Column("lora", sa.JSON, nullable=False),
        sa.Column("has_optimizer", sa.Boolean, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, index=True),
        sa.Column("user_metadata", sa.JSON, nullable=False),
        sa.UniqueConstraint("model_id", "kind", "name"),
    )
