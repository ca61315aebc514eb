"""Checksums of a checkpoint's files."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("sha256", sa.JSON))
