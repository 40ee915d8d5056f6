"""What is kept of one request that was served: who asked for what, and what it took. Never a word of it."""

from typing import NamedTuple


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
    """None when nobody said."""
    completion_tokens: int | None = None
    attempts: int = 0
    latency_ms: float = 0.0
    key_name: str = ""
    """The key or sandbox token it came with, as `Caller.shown_name` tells it; empty for none."""
