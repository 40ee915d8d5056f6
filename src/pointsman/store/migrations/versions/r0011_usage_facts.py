"""What rows of usage tell besides: whose key, what was asked for, how it ended. Models have a context, as routes do."""

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0011"
down_revision = "0010"


def upgrade(op: Operations) -> None:
    """Rows that exist tell nothing of what was not noted then; models that exist take nothing out."""
    for name, kind, default in (
        ("key_user", sa.Text(), "''"),
        ("requested_model", sa.Text(), "''"),
        ("ai_model_id", sa.Text(), "''"),
        ("upstream_request_id", sa.Text(), "''"),
        ("finish_reason", sa.Text(), "''"),
        ("error_detail", sa.Text(), "''"),
        ("client_retries", sa.Integer(), "0"),
        ("is_fallback", sa.Integer(), "0"),
        ("budgets", sa.Text(), "''"),
        ("refused_budget", sa.Text(), "''"),
    ):
        op.add_column("usage", sa.Column(name, kind, nullable=False, server_default=sa.text(default)))
    op.add_column("ai_models", sa.Column("context", sa.Text, nullable=False, server_default=sa.text("''")))
