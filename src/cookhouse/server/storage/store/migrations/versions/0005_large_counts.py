"""Sizes and counts of more than 32 bits, in databases that tell them apart."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("checkpoints") as checkpoints:
        checkpoints.alter_column("size_bytes", type_=sa.BigInteger, existing_nullable=False)
    with op.batch_alter_table("usage") as usage:
        for name in ("trained_tokens", "scored_tokens", "prompt_tokens", "sampled_tokens"):
            usage.alter_column(name, type_=sa.BigInteger, existing_nullable=False)
