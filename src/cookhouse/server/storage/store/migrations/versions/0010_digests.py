"""Digests of the files, and checksums of the rows, that live sessions are restored from."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("states", sa.Column("sha256", sa.JSON))
    op.add_column("samplers", sa.Column("sha256", sa.JSON))
    for table in ("sessions", "runs", "samplers", "recordings", "entries", "answers", "states"):
        op.add_column(table, sa.Column("row_crc", sa.BigInteger))
    op.add_column("entries", sa.Column("run_crc", sa.BigInteger))
