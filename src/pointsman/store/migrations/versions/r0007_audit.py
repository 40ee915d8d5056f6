"""The audit record, and its newest entry in a row of its own."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0007"
down_revision = "0006"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Nothing that exists changes. What was done before is not in the record."""
    op.create_table(
        "audit",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("account", _NAME, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("previous", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit"),
    )
    op.create_index("ix_audit_account_sequence", "audit", ["account", "sequence"])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
        sa.CheckConstraint("id = 1", name="ck_audit_head_one_row"),
    )
    op.bulk_insert(head, [{"id": 1, "sequence": 0, "digest": bytes(32)}])
