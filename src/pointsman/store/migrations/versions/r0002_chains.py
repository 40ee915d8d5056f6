"""Keys of the data listener, what chains and aliases are made of, and usage."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Routes that exist stay direct."""
    for name, kind, default in (
        ("candidates", sa.Text(), "'[]'"),
        ("strategy", sa.Text(), "''"),
        ("fallback", _NAME, "''"),
        ("request_timeout_seconds", sa.Integer(), "0"),
        ("target", _NAME, "''"),
        ("via_gateway", sa.Integer(), "0"),
    ):
        op.add_column("routes", sa.Column(name, kind, nullable=False, server_default=sa.text(default)))
    op.create_table(
        "keys",
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_keys_account"), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("permissions", sa.Text, nullable=False),
        sa.Column("routes", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.PrimaryKeyConstraint("account", "name", name="pk_keys"),
        sa.UniqueConstraint("digest", name="uq_keys_digest"),
    )
    op.create_table(
        "usage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("account", _NAME, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("route", _NAME, nullable=False),
        sa.Column("provider", _NAME, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger),
        sa.Column("completion_tokens", sa.BigInteger),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("latency_ms", sa.Double, nullable=False),
        sa.Column("key_name", _NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
    )
    op.create_index("ix_usage_account_at", "usage", ["account", "at"])
    op.create_index("ix_usage_at", "usage", ["at"])
