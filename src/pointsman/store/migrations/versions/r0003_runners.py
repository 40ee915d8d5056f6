"""Runners, and the models that accounts have registered."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0003"
down_revision = "0002"

_NAME = sa.Text().with_variant(sa.String(collation="C"), "postgresql")


def upgrade(op: Operations) -> None:
    """Nothing that exists changes."""
    op.create_table(
        "runners",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_runners_account"), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("token_digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_seen_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_runners"),
        sa.UniqueConstraint("account", "name", name="uq_runners_account_name"),
        sa.UniqueConstraint("token_digest", name="uq_runners_token_digest"),
    )
    op.create_table(
        "ai_models",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("account", _NAME, sa.ForeignKey("accounts.name", name="fk_ai_models_account"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("alias", _NAME, nullable=False),
        sa.Column("endpoint_type", sa.Text, nullable=False),
        sa.Column("runner_id", sa.Text),
        sa.Column("api_endpoint", sa.Text, nullable=False),
        sa.Column("model_identifier", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ai_models"),
        sa.UniqueConstraint("account", "alias", name="uq_ai_models_account_alias"),
        sa.UniqueConstraint(
            "runner_id", "api_endpoint", "model_identifier", name="uq_ai_models_runner_id_api_endpoint_model_identifier"
        ),
        sa.CheckConstraint("(endpoint_type = 'runner') = (runner_id IS NOT NULL)", name="ck_ai_models_runner"),
        sa.CheckConstraint("endpoint_type IN ('direct', 'runner')", name="ck_ai_models_endpoint_type"),
    )
