"""Makes a database what an older version had left: takes back what each revision since has added."""

from sqlalchemy import Connection, text

from pointsman.store import migrations

ADDED: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "0002": (
        ("keys", "usage"),
        {"routes": ("candidates", "strategy", "fallback", "request_timeout_seconds", "target", "via_gateway")},
    ),
    "0003": (("runners", "ai_models"), {}),
    "0004": (("budgets",), {}),
    "0005": (
        ("price_changes",),
        {
            "usage": (
                *("method", "path", "dialect", "cached_tokens", "reasoning_tokens", "usage_source", "cost"),
                *("price_version", "reason", "policy_hits", "saved_tokens"),
            )
        },
    ),
    "0006": (("policies",), {}),
    "0007": (("audit", "audit_head"), {}),
    "0008": (("receipts", "receipt_heads"), {}),
    "0009": ((), {"accounts": ("halted_at",), "keys": ("networks", "owner")}),
    "0010": ((), {"routes": ("context",)}),
    "0011": (
        (),
        {
            "usage": (
                *("key_user", "requested_model", "ai_model_id", "upstream_request_id", "finish_reason"),
                *("error_detail", "client_retries", "is_fallback", "budgets", "refused_budget"),
            ),
            "ai_models": ("context",),
        },
    ),
}
"""Tables, and columns by table, of every revision but the first."""


def leave_as(connection: Connection, revision: str) -> None:
    """Nothing that came after a revision is there any more."""
    for later in reversed(migrations.REVISIONS):
        if later == revision:
            break
        tables, columns = ADDED[later]
        for table in tables:
            connection.execute(text(f"DROP TABLE {table}"))
        for table, names in columns.items():
            for name in names:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {name}"))
    connection.execute(text(f"UPDATE {migrations.VERSION_TABLE} SET version_num = '{revision}'"))
