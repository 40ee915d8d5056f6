"""What many requests came to together, and by what they are put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pointsman.core.usage_row import UsageRow

MOST_SUMS = 1000
"""Groups of one answer; those that cost the least are left out beyond."""
MOST_ROWS = 1000
"""Of one page."""


class UsageBy(StrEnum):
    """What all requests of one sum have in common."""

    ACCOUNT = "account"
    KEY = "key"
    ROUTE = "route"
    MODEL = "model"
    PROVIDER = "provider"
    DAY = "day"
    """In UTC."""


def parse_by(text: str) -> Sequence[UsageBy]:
    """`day,key,model`, each once. Raises ValueError."""
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in list(UsageBy)]
    if unknown:
        raise ValueError(
            f"usage is told by {', '.join(UsageBy)}, or several with commas between, not by {unknown[0][:64]!r}"
        )
    return [UsageBy(word) for word in dict.fromkeys(words)]


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` on, and before `until`: seconds since the epoch."""

    since: float
    until: float


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Of the requests of one group."""

    names: tuple[str, ...]
    """What they have in common, in the order asked for: a day, a key's name."""
    requests: int = 0
    failed: int = 0
    """Those that did not complete."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    saved_tokens: int = 0
    cost: int = 0
    """As an amount (`core.money`)."""
    estimated: int = 0
    """Requests whose tokens were reckoned, since their upstream did not tell them."""
    unpriced: int = 0
    """Requests with tokens that no price was known for: they are in the cost with nothing."""

    @property
    def total_tokens(self) -> int:
        """Both ways."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Of a row among all, the newest first."""

    at: float
    id: int


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Rows, the newest first, and where the next page begins; None: this was the last."""

    rows: tuple[UsageRow, ...]
    next: RowPlace | None
