"""What is kept of one request that was served: who asked for what, and what it took. Never a word of it."""

from typing import NamedTuple

REPORTED = "reported"
ESTIMATED = "estimated"


class UsageRow(NamedTuple):
    """One request. Rows are added and, when they are old, removed; they are never changed.

    A tuple, since one is made per request, and drivers take it as it is. The names are the table's.
    """

    account: str
    request_id: str
    at: float
    """Seconds since the epoch; when it ended."""
    route: str
    provider: str = ""
    """Whose answer it was; empty when nobody answered."""
    model: str = ""
    """What was really used."""
    status: int = 0
    """What the client got; 0 when it left before."""
    prompt_tokens: int | None = None
    """None for what used none: nobody answered, or with an error."""
    completion_tokens: int | None = None
    attempts: int = 0
    latency_ms: float = 0.0
    key_name: str = ""
    """The key or sandbox token it came with, as `Caller.shown_name` tells it; empty for none."""
    method: str = ""
    path: str = ""
    """Without its query."""
    dialect: str = ""
    cached_tokens: int = 0
    """Of the prompt."""
    reasoning_tokens: int = 0
    """Of the completion."""
    usage_source: str = ""
    """`REPORTED`, `ESTIMATED` or, where there are no tokens, empty."""
    cost: int | None = None
    """As an amount (`core.money`); None when there was no price, or no tokens."""
    price_version: int = 0
    """Of the account's price table; 0 when it had none."""
    reason: str = ""
    """Why it did not complete, in one word; empty when it did."""
    policy_hits: int = 0
    """Rules that matched."""
    saved_tokens: int = 0
    """That context optimisation took out, reckoned."""
    key_user: str = ""
    """Who has the key, as the operator calls them."""
    requested_model: str = ""
    """What the client named, which a route's name need not be where there is a default route."""
    ai_model_id: str = ""
    """The registered model that it went to, or was meant to; empty for a provider's."""
    upstream_request_id: str = ""
    """What the provider calls it, whose answer it was."""
    finish_reason: str = ""
    """Why the model stopped, in the provider's word."""
    error_detail: str = ""
    """Why it did not complete, in a line for the operator; never a word of a prompt or an answer."""
    client_retries: int = 0
    """How often its client had tried before, as its library says."""
    is_fallback: int = 0
    """1: the answer is the one of a chain's fallback."""
    budgets: str = ""
    """The names of the budgets that it counts for, with commas between."""
    refused_budget: str = ""
    """The one that had no room for it."""

    @property
    def total_tokens(self) -> int | None:
        """None for what used none."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)
