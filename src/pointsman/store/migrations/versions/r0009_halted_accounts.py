"""Accounts can be halted, and keys say from where they may be shown and who has them."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0009"
down_revision = "0008"


def upgrade(op: Operations) -> None:
    """What exists is neither halted nor bound to a network."""
    op.add_column("accounts", sa.Column("halted_at", sa.Double))
    op.add_column("keys", sa.Column("networks", sa.Text, nullable=False, server_default="[]"))
    op.add_column("keys", sa.Column("owner", sa.Text, nullable=False, server_default=sa.text("''")))
