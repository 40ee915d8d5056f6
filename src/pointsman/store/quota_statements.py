"""What is said to a database that counts, understood by SQLite and by PostgreSQL alike.

A reservation is one statement, so that it is exact however many processes there are, and takes day and minute together
or neither. The rules for clocks that jump are those of `core.quota_book`.
"""

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

RESERVE = f"""INSERT INTO quota_days (account, provider, day, daily, minute, minutely)
SELECT :account, :provider, :day, 1, :minute, 1
WHERE NOT EXISTS (SELECT 1 FROM quota_exhausted WHERE {_OF_KEY} AND until > :now AND said_at <= {_BELIEVED})
  AND NOT EXISTS (SELECT 1 FROM quota_days WHERE {_OF_KEY} AND day = :next_day AND :limit > 0 AND daily >= :limit)
ON CONFLICT (account, provider, day) DO UPDATE SET
  daily = quota_days.daily + 1,
  minutely = CASE WHEN {_IS_CURRENT} THEN quota_days.minutely + 1 ELSE 1 END,
  minute = CASE WHEN {_IS_CURRENT} AND quota_days.minutely > 0 THEN quota_days.minute ELSE :minute END
WHERE (:limit = 0 OR quota_days.daily < :limit)
  AND (:per_minute = 0 OR quota_days.minutely < :per_minute OR NOT {_IS_CURRENT})
RETURNING daily, minute, minutely"""  # noqa: S608  # constants of ours
"""One row when a place was taken, else none."""

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
