"""What is said to a database that counts budgets, understood by SQLite and by PostgreSQL alike.

Each is one statement, about several counters in the order of their keys, so that processes wait for each other and
never in a circle.
"""

from collections.abc import Sequence
from functools import lru_cache

from pointsman.core.budget import MOST_BUDGETS

COUNTERS_AT_ONCE = 50
"""Of one statement: it takes a millisecond, and there is a bound to how many forms of it a database remembers."""

TABLES = (
    """CREATE TABLE IF NOT EXISTS budget_counts (
    budget TEXT NOT NULL, subject TEXT NOT NULL, span TEXT NOT NULL, account TEXT NOT NULL,
    used BIGINT NOT NULL, most BIGINT, ends_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (budget, subject, span))""",
    "CREATE INDEX IF NOT EXISTS budget_counts_ends_at ON budget_counts (ends_at)",
)

_COLUMNS = "budget, subject, span, account, used, most, ends_at"
_ASKED = ("budget", "subject", "span", "amount", "most", "ends")
_SAME = " AND ".join(f"budget_counts.{name} = asked.{name}" for name in ("budget", "subject", "span"))
_FULL = 1 << 62
"""A counter that is beyond it grows no more: both databases count to 2^63, and a step is `core.budget.MOST` at most."""

_NAMES = [tuple(f"{name}{number}" for name in _ASKED) for number in range(max(MOST_BUDGETS, COUNTERS_AT_ONCE))]
"""Of what is given for each counter."""


Counter = tuple[str, str, str, int, int, float]
"""Budget, subject, window, amount, limit, end."""


def values_of(counters: Sequence[Counter]) -> dict[str, str | int | float]:
    """What statements about these counters are asked with, besides `account`."""
    values: dict[str, str | int | float] = {}
    for names, counter in zip(_NAMES, counters, strict=False):
        values.update(zip(names, counter, strict=True))
    return values


def _asked(count: int) -> str:
    rows = ", ".join(f"({', '.join(f':{name}' for name in names)})" for names in _NAMES[:count])
    return f"WITH asked (budget, subject, span, amount, most, ends) AS (VALUES {rows})"


RESERVE_MORE = """UPDATE budget_counts SET used = used + :amount0, most = :most0
WHERE budget = :budget0 AND subject = :subject0 AND span = :span0 AND used + :amount0 <= :most0
RETURNING used"""
"""The same as `reserve(1)` for a counter that there is: half of its CPU time on SQLite."""


ADD_VALUES = ("amount", "most", "budget", "subject", "span")
ADD = """UPDATE budget_counts SET used = used + :amount, most = :most
WHERE budget = :budget AND subject = :subject AND span = :span AND used + :amount <= :most"""
"""As RESERVE_MORE. Several in one transaction that is made by hand cost SQLite less than one `reserve` of them all."""


@lru_cache
def reserve(count: int) -> str:
    """Adds to so many counters; a row for each, or fewer when one has no room.

    SQLite's writers come one after the other: there it adds to all or to none. PostgreSQL's are told apart by the
    number of rows, and the transaction of one that has too few must be undone.
    """
    return f"""{_asked(count)}
INSERT INTO budget_counts ({_COLUMNS})
SELECT budget, subject, span, :account, amount, most, ends FROM asked WHERE NOT EXISTS (
  SELECT 1 FROM asked LEFT JOIN budget_counts ON {_SAME} WHERE COALESCE(used, 0) + asked.amount > asked.most)
ON CONFLICT (budget, subject, span) DO UPDATE SET used = budget_counts.used + excluded.used, most = excluded.most
WHERE budget_counts.used + excluded.used <= excluded.most
RETURNING used"""  # noqa: S608  # constants of ours


@lru_cache
def settle(count: int) -> str:
    """Changes so many counters by what may be negative; none goes below zero. Tells the key and what it is now."""
    return f"""{_asked(count)}
INSERT INTO budget_counts ({_COLUMNS})
SELECT budget, subject, span, :account, amount, NULL, ends FROM asked
WHERE amount > 0 OR EXISTS (SELECT 1 FROM budget_counts WHERE {_SAME})
ON CONFLICT (budget, subject, span) DO UPDATE
SET used = CASE WHEN budget_counts.used > {_FULL} AND excluded.used > 0 THEN budget_counts.used
  WHEN budget_counts.used + excluded.used > 0 THEN budget_counts.used + excluded.used ELSE 0 END
RETURNING budget, subject, span, used"""  # noqa: S608


@lru_cache
def look(count: int) -> str:
    """What was used of so many counters, of those that there are."""
    return f"""{_asked(count)}
SELECT budget_counts.budget, budget_counts.subject, budget_counts.span, used
FROM asked JOIN budget_counts ON {_SAME}"""  # noqa: S608


USED = """SELECT budget, subject, span, used, ends_at FROM budget_counts
WHERE account = :account AND ends_at > :now ORDER BY budget, subject"""
FORGET = "DELETE FROM budget_counts WHERE budget = :budget"
PRUNED_AT_ONCE = 200
"""A millisecond of the event loop's time."""
PRUNE = f"""DELETE FROM budget_counts WHERE (budget, subject, span) IN (
  SELECT budget, subject, span FROM budget_counts
  WHERE ends_at < :recent AND (ends_at < :oldest OR span LIKE '%T%') LIMIT {PRUNED_AT_ONCE})
RETURNING budget"""  # noqa: S608
"""Hours and minutes have a T in their names."""
