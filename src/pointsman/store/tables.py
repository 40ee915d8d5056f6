"""The tables as the code uses them now. How a database comes to have them: `migrations`."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

# Sorted by code point on both, wherever the server was set up.
NAME = Text().with_variant(String(collation="C"), "postgresql")

# In quotes: unquoted, SQLite and the comparison of tables take an empty default for none.
EMPTY = text("''")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

generation = Table(
    "generation",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""One row. Every writer changes it first, and so waits for the one before."""

key_check = Table(
    "key_check",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", LargeBinary, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""At most one row: tells the key file that belongs to this database from another one."""

accounts = Table(
    "accounts",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("halted_at", Double),
)

providers = Table(
    "providers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", NAME, ForeignKey("accounts.name"), nullable=False),
    Column("name", NAME, nullable=False),
    Column("type", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    UniqueConstraint("account", "name"),
)
"""`config` is a JSON object of strings."""

provider_credentials = Table(
    "provider_credentials",
    metadata,
    Column("provider_id", Text, ForeignKey("providers.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("value", LargeBinary, nullable=False),
)
"""`value` is encrypted; `position` is the order in which they were given."""

routes = Table(
    "routes",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("provider_name", NAME, nullable=False),
    Column("model", Text, nullable=False),
    Column("timeout_seconds", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("candidates", Text, nullable=False, server_default="[]"),
    Column("strategy", Text, nullable=False, server_default=EMPTY),
    Column("fallback", NAME, nullable=False, server_default=EMPTY),
    Column("request_timeout_seconds", Integer, nullable=False, server_default="0"),
    Column("target", NAME, nullable=False, server_default=EMPTY),
    Column("via_gateway", Integer, nullable=False, server_default="0"),
    Column("context", Text, nullable=False, server_default=EMPTY),
    Index(None, "account", "provider_name"),
)
"""`candidates` is a JSON list of pairs: a provider's name and a model, or an empty text for the provider's own.
`context`: as `core.context_options` writes it."""

route_versions = Table(
    "route_versions",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
"""The last version of every name that ever was, so that none is used twice."""

sandbox_tokens = Table(
    "sandbox_tokens",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("route", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    UniqueConstraint("digest"),
)

keys = Table(
    "keys",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("permissions", Text, nullable=False),
    Column("routes", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("networks", Text, nullable=False, server_default="[]"),
    Column("owner", Text, nullable=False, server_default=EMPTY),
    UniqueConstraint("digest"),
)
"""`permissions`, `routes` and `networks` are JSON lists of texts; `owner` is the user, a word of SQL's."""

budgets = Table(
    "budgets",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("subject", NAME, nullable=False),
    Column("unit", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("span", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("is_hard", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("id"),
)
"""`span` is the window: that word is SQL's. What was used is the ledger's, by `id`."""

price_changes = Table(
    "price_changes",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("at", Double, nullable=False),
    Column("provider", NAME, nullable=False),
    Column("model", NAME, nullable=False),
    Column("input", BigInteger, nullable=False),
    Column("output", BigInteger, nullable=False),
    Column("cached_input", BigInteger),
    Column("request", BigInteger, nullable=False),
    Column("is_removed", Integer, nullable=False),
    Index(None, "account", "provider", "model", "version"),
)
"""Rows are added only: an account's table at a version is the last change of each price until then."""

runners = Table(
    "runners",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", NAME, ForeignKey("accounts.name"), nullable=False),
    Column("name", NAME, nullable=False),
    Column("token_digest", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("last_seen_at", Double),
    UniqueConstraint("account", "name"),
    UniqueConstraint("token_digest"),
)

ai_models = Table(
    "ai_models",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account", NAME, ForeignKey("accounts.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("alias", NAME, nullable=False),
    Column("endpoint_type", Text, nullable=False),
    Column("runner_id", Text),
    Column("api_endpoint", Text, nullable=False),
    Column("model_identifier", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("context", Text, nullable=False, server_default=EMPTY),
    UniqueConstraint("account", "alias"),
    UniqueConstraint("runner_id", "api_endpoint", "model_identifier"),
    CheckConstraint("(endpoint_type = 'runner') = (runner_id IS NOT NULL)", name="runner"),
    CheckConstraint("endpoint_type IN ('direct', 'runner')", name="endpoint_type"),
)
"""`runner_id` refers to nothing: a model outlives its runner, as history."""

policies = Table(
    "policies",
    metadata,
    Column("account", NAME, ForeignKey("accounts.name"), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("rules", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("state", Text, nullable=False),
    Column("enforced_at", Double),
    CheckConstraint("state IN ('enforced', 'dry_run', 'kept')", name="state"),
)
"""`rules` is a JSON list."""
receipts = Table(
    "receipts",
    metadata,
    Column("account", NAME, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("request_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("route", NAME, nullable=False),
    Column("provider", NAME, nullable=False),
    Column("model", Text, nullable=False),
    Column("policy_version", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("status", Integer, nullable=False),
    Column("received", LargeBinary, nullable=False),
    Column("sent", LargeBinary, nullable=False),
    Column("answered", LargeBinary, nullable=False),
    Column("delivered", LargeBinary, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index(None, "account", "request_id"),
)
"""Rows refer to nothing, and none is ever changed."""

receipt_heads = Table(
    "receipt_heads",
    metadata,
    Column("account", NAME, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)
"""The newest receipt of each account. Whoever adds one changes this first, and so waits for whoever does before."""

usage = Table(
    "usage",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("account", NAME, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("route", NAME, nullable=False),
    Column("provider", NAME, nullable=False),
    Column("model", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("prompt_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("latency_ms", Double, nullable=False),
    Column("key_name", NAME, nullable=False),
    Column("method", Text, nullable=False, server_default=EMPTY),
    Column("path", Text, nullable=False, server_default=EMPTY),
    Column("dialect", Text, nullable=False, server_default=EMPTY),
    Column("cached_tokens", BigInteger, nullable=False, server_default="0"),
    Column("reasoning_tokens", BigInteger, nullable=False, server_default="0"),
    Column("usage_source", Text, nullable=False, server_default=EMPTY),
    Column("cost", BigInteger),
    Column("price_version", BigInteger, nullable=False, server_default="0"),
    Column("reason", Text, nullable=False, server_default=EMPTY),
    Column("policy_hits", Integer, nullable=False, server_default="0"),
    Column("saved_tokens", BigInteger, nullable=False, server_default="0"),
    Column("key_user", Text, nullable=False, server_default=EMPTY),
    Column("requested_model", Text, nullable=False, server_default=EMPTY),
    Column("ai_model_id", Text, nullable=False, server_default=EMPTY),
    Column("upstream_request_id", Text, nullable=False, server_default=EMPTY),
    Column("finish_reason", Text, nullable=False, server_default=EMPTY),
    Column("error_detail", Text, nullable=False, server_default=EMPTY),
    Column("client_retries", Integer, nullable=False, server_default="0"),
    Column("is_fallback", Integer, nullable=False, server_default="0"),
    Column("budgets", Text, nullable=False, server_default=EMPTY),
    Column("refused_budget", Text, nullable=False, server_default=EMPTY),
    Index(None, "account", "at"),
    Index(None, "at"),
)
"""Rows refer to nothing: what they tell of may be long gone."""

audit = Table(
    "audit",
    metadata,
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("account", NAME, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index(None, "account", "sequence"),
)
"""Rows refer to nothing, and no statement of ours changes or removes one."""

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""The newest entry's. Its row is what writers queue for, and a record that was cut no longer reaches it."""
