"""Who owns a record."""

from dataclasses import dataclass

DEFAULT_ACCOUNT = "default"
"""Exists from the start."""


@dataclass(frozen=True, slots=True)
class Account:
    """An owner of providers, routes, tokens and usage."""

    name: str
    created_at: float
    """Seconds since the epoch."""
