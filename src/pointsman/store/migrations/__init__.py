"""How a database comes to have the tables: one step per version, in order, never changed once released."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
"""Every revision, oldest first; the last is what the code needs."""
VERSION_TABLE = "pointsman_schema"
"""Holds the revision of a database. A name of our own: the database may be shared with another program."""
