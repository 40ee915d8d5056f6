"""What is said to a database that counts, understood by SQLite and by PostgreSQL alike.

A reservation is one statement, so that it is exact however many processes there are, and takes day and minute together
or neither. The rules for clocks that jump are those of `core.quota_book`.
"""

import re

from pointsman.core.quota_book import BELIEVED_AHEAD_SECONDS, MINUTES_AHEAD

TABLES = (
    """CREATE TABLE IF NOT EXISTS quota_days (
    account TEXT NOT NULL, provider TEXT NOT NULL, day TEXT NOT NULL,
    daily INTEGER NOT NULL, minute INTEGER NOT NULL, minutely INTEGER NOT NULL,
    PRIMARY KEY (account, provider, day))""",
    """CREATE TABLE IF NOT EXISTS quota_exhausted (
    account TEXT NOT NULL, provider TEXT NOT NULL,
    until DOUBLE PRECISION NOT NULL, said_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (account, provider))""",
)

_OF_KEY = "account = :account AND provider = :provider"
_IS_CURRENT = f"quota_days.minute BETWEEN :minute AND :minute + {MINUTES_AHEAD}"
_BELIEVED = f":now + {BELIEVED_AHEAD_SECONDS}"

_HAS_ROOM = f"""(:limit = 0 OR quota_days.daily < :limit)
  AND (:per_minute = 0 OR quota_days.minutely < :per_minute OR NOT {_IS_CURRENT})"""
_MINUTE = f"CASE WHEN {_IS_CURRENT} AND quota_days.minutely > 0 THEN quota_days.minute ELSE :minute END"
_MINUTELY = f"CASE WHEN {_IS_CURRENT} THEN quota_days.minutely + 1 ELSE 1 END"
_NOT_CLOSED = f"""NOT EXISTS
  (SELECT 1 FROM quota_exhausted WHERE {_OF_KEY} AND until > :now AND said_at <= {_BELIEVED})
  AND NOT EXISTS
  (SELECT 1 FROM quota_days AS ahead
    WHERE {_OF_KEY} AND day > :day AND day <= :ahead AND :limit > 0 AND daily >= :limit)"""  # noqa: S608  # constants of ours

RESERVE = f"""INSERT INTO quota_days (account, provider, day, daily, minute, minutely)
SELECT :account, :provider, :day, 1, :minute, 1 WHERE {_NOT_CLOSED}
ON CONFLICT (account, provider, day) DO UPDATE SET
  daily = quota_days.daily + 1, minutely = {_MINUTELY}, minute = {_MINUTE}
WHERE {_HAS_ROOM}
RETURNING daily, minute, minutely"""
"""One row when a place was taken, else none."""

RESERVE_VALUES = ("account", "provider", "day", "ahead", "minute", "limit", "per_minute", "now")
"""What it is asked with."""

COUNT_MORE = f"""UPDATE quota_days
SET daily = counted(quota_days.daily + 1, {_MINUTE}, {_MINUTELY}), minutely = {_MINUTELY}, minute = {_MINUTE}
WHERE {_OF_KEY} AND day = :day AND {_HAS_ROOM} AND {_NOT_CLOSED}"""  # noqa: S608
"""The same on a date that has a row already, for SQLite alone. It tells the row to a function, `counted`, which gives
back its first argument: RETURNING would cost a quarter more, INSERT and RETURNING half as much again."""

RELEASE = f"""UPDATE quota_days SET
  daily = daily - 1,
  minutely = CASE WHEN minute = :minute AND minutely > 0 THEN minutely - 1 ELSE minutely END
WHERE {_OF_KEY} AND day = :day AND daily > 0
RETURNING daily, minute, minutely"""  # noqa: S608

EXHAUST = f"""INSERT INTO quota_exhausted (account, provider, until, said_at)
VALUES (:account, :provider, :until, :now)
ON CONFLICT (account, provider) DO UPDATE SET until = excluded.until, said_at = excluded.said_at
WHERE excluded.until > quota_exhausted.until OR quota_exhausted.said_at > {_BELIEVED}"""  # noqa: S608

COUNTS_OF_DAY = f"SELECT daily, minute, minutely FROM quota_days WHERE {_OF_KEY} AND day = :day"  # noqa: S608
EXHAUSTED_OF = f"SELECT until, said_at FROM quota_exhausted WHERE {_OF_KEY}"  # noqa: S608

COUNTS_SINCE = "SELECT account, provider, day, daily, minute, minutely FROM quota_days WHERE day >= :since"
ALL_EXHAUSTED = "SELECT account, provider, until, said_at FROM quota_exhausted"

PRUNE = (
    "DELETE FROM quota_days WHERE day < :oldest_day",
    "DELETE FROM quota_exhausted WHERE until < :oldest AND said_at < :oldest",
)


def numbered(statement: str, names: tuple[str, ...]) -> str:
    """With SQLite's numbers in place of names: values can be given as a tuple in this order."""
    return re.sub(r":(\w+)", lambda match: f"?{names.index(match[1]) + 1}", statement)
