"""What the gateway keeps: one code path for SQLite and PostgreSQL."""
