"""Receipts: hashes of what passed, in a chain of each account's."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0008"
down_revision = "0007"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Nothing that exists changes."""
    op.create_table(
        "receipts",
        sa.Column("account", _NAME, nullable=False),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("route", _NAME, nullable=False),
        sa.Column("provider", _NAME, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("policy_version", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("received", sa.LargeBinary, nullable=False),
        sa.Column("sent", sa.LargeBinary, nullable=False),
        sa.Column("answered", sa.LargeBinary, nullable=False),
        sa.Column("delivered", sa.LargeBinary, nullable=False),
        sa.Column("previous", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("account", "sequence", name="pk_receipts"),
    )
    op.create_index("ix_receipts_account_request_id", "receipts", ["account", "request_id"])
    op.create_table(
        "receipt_heads",
        sa.Column("account", _NAME, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("account", name="pk_receipt_heads"),
    )
