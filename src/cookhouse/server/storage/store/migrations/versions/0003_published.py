"""Published checkpoints, projects of sessions, and how sessions ended."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("sessions", sa.Column("project_id", sa.String))
    op.add_column("sessions", sa.Column("finish_reason", sa.String))
    op.add_column("sessions", sa.Column("finish_detail", sa.String))
