"""Prices, and what rows of usage tell besides: dialect, cached and reasoning tokens, cost, and why a request failed."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0005"
down_revision = "0004"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Rows that exist keep what was reported, have no cost, and tell nothing of what was not noted then."""
    op.create_table(
        "price_changes",
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_price_changes_account"), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("provider", _NAME, nullable=False),
        sa.Column("model", _NAME, nullable=False),
        sa.Column("input", sa.BigInteger, nullable=False),
        sa.Column("output", sa.BigInteger, nullable=False),
        sa.Column("cached_input", sa.BigInteger),
        sa.Column("request", sa.BigInteger, nullable=False),
        sa.Column("is_removed", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account", "version", name="pk_price_changes"),
    )
    price = ["account", "provider", "model", "version"]
    op.create_index("ix_price_changes_account_provider_model_version", "price_changes", price)
    for name, kind, default in (
        ("method", sa.Text(), "''"),
        ("path", sa.Text(), "''"),
        ("dialect", sa.Text(), "''"),
        ("cached_tokens", sa.BigInteger(), "0"),
        ("reasoning_tokens", sa.BigInteger(), "0"),
        ("usage_source", sa.Text(), "''"),
        ("price_version", sa.BigInteger(), "0"),
        ("reason", sa.Text(), "''"),
        ("policy_hits", sa.Integer(), "0"),
        ("saved_tokens", sa.BigInteger(), "0"),
    ):
        if name == "price_version":
            op.add_column("usage", sa.Column("cost", sa.BigInteger))
        op.add_column("usage", sa.Column(name, kind, nullable=False, server_default=sa.text(default)))
    usage = sa.table("usage", sa.column("prompt_tokens"), sa.column("completion_tokens"), sa.column("usage_source"))
    told = usage.c.prompt_tokens.is_not(None) | usage.c.completion_tokens.is_not(None)
    op.execute(sa.update(usage).where(told).values(usage_source="reported"))
