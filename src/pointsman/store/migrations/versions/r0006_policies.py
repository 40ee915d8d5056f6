"""Policies: rules for requests and answers, in versions."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0006"
down_revision = "0005"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Nothing that exists changes."""
    op.create_table(
        "policies",
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_policies_account"), nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("enforced_at", sa.Double),
        sa.PrimaryKeyConstraint("account", "version", name="pk_policies"),
        sa.CheckConstraint("state IN ('enforced', 'dry_run', 'kept')", name="ck_policies_state"),
    )
