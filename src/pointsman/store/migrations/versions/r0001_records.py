"""Accounts (`default` exists from here on), providers, routes, sandbox tokens; the generation and the key check."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """From an empty database."""
    accounts = op.create_table(
        "accounts",
        sa.Column("name", _NAME, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_accounts"),
    )
    op.bulk_insert(accounts, [{"name": "default", "created_at": 0.0}])
    generation = op.create_table(
        "generation",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_generation"),
        sa.CheckConstraint("id = 1", name="ck_generation_one_row"),
    )
    op.bulk_insert(generation, [{"id": 1, "value": 0}])
    op.create_table(
        "key_check",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_key_check"),
        sa.CheckConstraint("id = 1", name="ck_key_check_one_row"),
    )
    _create_providers(op)
    _create_routes(op)
    op.create_table(
        "sandbox_tokens",
        _account("sandbox_tokens"),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.PrimaryKeyConstraint("account", "name", name="pk_sandbox_tokens"),
        sa.UniqueConstraint("digest", name="uq_sandbox_tokens_digest"),
    )


def _account(table: str) -> sa.Column[str]:
    return sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name=f"fk_{table}_account"), nullable=False)


def _create_providers(op: Operations) -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.Text, nullable=False),
        _account("providers"),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_providers"),
        sa.UniqueConstraint("account", "name", name="uq_providers_account_name"),
    )
    op.create_table(
        "provider_credentials",
        sa.Column(
            "provider_id",
            sa.Text,
            sa.ForeignKey("providers.id", name="fk_provider_credentials_provider_id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("provider_id", "key", name="pk_provider_credentials"),
    )


def _create_routes(op: Operations) -> None:
    op.create_table(
        "routes",
        _account("routes"),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("provider_name", _NAME, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("timeout_seconds", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("account", "name", name="pk_routes"),
    )
    op.create_index("ix_routes_account_provider_name", "routes", ["account", "provider_name"])
    op.create_table(
        "route_versions",
        _account("route_versions"),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account", "name", name="pk_route_versions"),
    )
