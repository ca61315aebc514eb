"""Versions of the SDKs that sessions came with."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("sdk_version", sa.String))
