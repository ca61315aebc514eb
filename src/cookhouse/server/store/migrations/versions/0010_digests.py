"""Digests of the files that live sessions are restored from."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("states", sa.Column("sha256", sa.JSON))
    op.add_column("samplers", sa.Column("sha256", sa.JSON))
