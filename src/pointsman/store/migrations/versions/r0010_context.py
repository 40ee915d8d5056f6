"""What routes have taken out of conversations."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0010"
down_revision = "0009"


def upgrade(op: Operations) -> None:
    """Routes that exist take nothing out."""
    op.add_column("routes", sa.Column("context", sa.Text, nullable=False, server_default=sa.text("''")))
