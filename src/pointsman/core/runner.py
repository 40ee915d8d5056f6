"""A machine beside whose model servers a runner runs, as an account knows it."""

import re
from dataclasses import dataclass

RUNNER_PREFIX = "pointsman-runner-"
"""So that a token found somewhere tells what it is."""
MOST_RUNNERS = 1000
"""Of one account (ours): all of them are one listing."""
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Runner:
    """What is kept of a runner; its token is shown once."""

    id: str
    """128 random bits in hexadecimal: also a part of a bus subject, where `.`, `*` and `>` would mean something."""
    account: str
    name: str
    """Unique in its account."""
    token_digest: bytes
    """SHA-256 of the token. A token has 256 random bits, so a slow hash would protect nothing more."""
    created_at: float
    """Seconds since the epoch, as the other."""
    last_seen_at: float | None = None
    """None: it has never been connected."""


def is_record_id(text: str) -> bool:
    """Whether a runner or an AI model may have this id. What is not one need not be looked for."""
    return _ID.fullmatch(text) is not None
