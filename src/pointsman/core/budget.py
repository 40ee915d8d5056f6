"""How much an account, a key, a route or a sandbox may use in a span of time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.money import NANO
from pointsman.core.quota import DEFAULT_ZONE

MOST = 1_000_000_000 * NANO
"""Of an amount, in any unit: a billion of money. Less than an eighth of what databases count to."""
MOST_BUDGETS = 256
"""Of one account (ours): each that applies to a request is a row of one transaction."""


class BudgetUnit(StrEnum):
    """What is counted."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    """Input and output together."""
    MONEY = "money"
    """Amounts of `core.money`, by the account's prices."""


class BudgetWindow(StrEnum):
    """In which span: of the clock, in the budget's time zone."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    TOTAL = "total"
    """From its making on, for ever."""


class BudgetScope(StrEnum):
    """Whose use is counted together. Every name but the account's own may be `*`: each one for itself."""

    ACCOUNT = "account"
    KEY = "key"
    ROUTE = "route"
    SANDBOX = "sandbox"


EACH = "*"


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit. Several may apply to a request; all of the hard ones must have room."""

    account: str
    name: str
    scope: BudgetScope
    subject: str
    """The key's, route's or sandbox token's name, or `*`; empty for the account."""
    unit: BudgetUnit
    amount: int
    """Requests, tokens, or an amount of money."""
    window: BudgetWindow
    time_zone: str = DEFAULT_ZONE
    """An IANA name: where its hours, days and months begin."""
    is_hard: bool = True
    """Whether what is beyond it is refused (429 `insufficient_quota`); a soft one is told of, once per window."""
    version: int = 0
    id: str = ""
    """Of its counters: one that is made anew under the name of another begins at 0."""

    def subject_of(self, caller: Caller, route: str) -> str | None:
        """Under whose name a request is counted; None when it is not about that request."""
        if caller.account != self.account:
            return None
        match self.scope:
            case BudgetScope.ACCOUNT:
                return ""
            case BudgetScope.ROUTE:
                named = route
            case BudgetScope.KEY:
                named = caller.key_name if caller.kind == KEY else ""
            case BudgetScope.SANDBOX:
                named = caller.key_name if caller.kind == SANDBOX_TOKEN else ""
        return named if named and self.subject in (named, EACH) else None


class Charge(NamedTuple):
    """What a request adds to one counter: a budget, for a subject, in a window."""

    budget: str
    """Its id."""
    subject: str
    window: str
    """Which one: `2026-12-01` of a day, `2026-12` of a month, `2026-12-01T13+01:00` of an hour; empty for the total."""
    ends_at: float
    """Of the window, seconds since the epoch; infinite for the total."""
    amount: int
    """Reserved: what it may come to. It is replaced by what it came to."""
    limit: int | None
    """None for a soft budget: it is counted when it is settled, and nothing is refused."""


@dataclass(slots=True)
class Hold:
    """Places that one request holds. It is settled once; of one that never is, the reserved amounts stay counted."""

    account: str
    charges: Sequence[Charge]
    is_settled: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """Why a request may not go: the budget that has no room, and when it has again."""

    budget: str
    """Its id."""
    retry_at: float
    """Seconds since the epoch, infinite for never: when the windows of all that have no room are over."""
