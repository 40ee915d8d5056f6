"""Which subject of the bus is whose."""

from hashlib import sha256

from pointsman.bus.interface import subject_of

LINES, LIVES, NEWER = "lines", "live", "newer"
"""Beside a runner's subject: whoever holds its line is told of others there, and asked whether a request lives on it,
or whether it has another line than the one that asks, which was cut off from the others."""
_ACCOUNT_CHARACTERS = 32


def runner_subject(account: str, runner_id: str, *more: str) -> str:
    """Where a runner is asked. Raises ValueError for an id that could reach beyond its place.

    An account's name may hold what has a meaning in a subject, so it stands there as a digest.
    """
    digest = sha256(account.encode()).hexdigest()[:_ACCOUNT_CHARACTERS]
    return subject_of("pointsman", "runner_models", digest, runner_id, *more)
