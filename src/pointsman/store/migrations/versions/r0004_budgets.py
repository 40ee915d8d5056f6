"""Budgets: how much an account, a key, a route or a sandbox may use. Their counters are the ledger's."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0004"
down_revision = "0003"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Nothing that exists changes."""
    op.create_table(
        "budgets",
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_budgets_account"), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("subject", _NAME, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("span", sa.Text, nullable=False),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("is_hard", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account", "name", name="pk_budgets"),
        sa.UniqueConstraint("id", name="uq_budgets_id"),
    )
