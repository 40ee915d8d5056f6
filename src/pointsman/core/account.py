"""Who owns a record."""

from dataclasses import dataclass

ACCOUNT_FIELD = "x-pointsman-account"
"""Names the account that a request works on: gRPC's metadata and REST's header alike."""
DEFAULT_ACCOUNT = "default"
"""Exists from the start."""


@dataclass(frozen=True, slots=True)
class Account:
    """An owner of providers, routes, tokens and usage."""

    name: str
    created_at: float
    """Seconds since the epoch, as the other."""
    halted_at: float | None = None
    """Since when nothing is served for it; None while it is."""
