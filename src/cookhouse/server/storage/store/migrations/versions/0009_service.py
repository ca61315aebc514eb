"""Tables of facts about a service, and of the profiles of its servers."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "service",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )
    op.add_column("servers", sa.Column("journal", sa.String))
    op.add_column("servers", sa.Column("checkpoints", sa.String))
    op.add_column("servers", sa.Column("base_models", sa.JSON))
