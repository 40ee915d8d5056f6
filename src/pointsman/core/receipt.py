"""A receipt of one request: hashes of what passed, chained. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """What can be shown later of one request: never a word of it."""

    sequence: int
    request_id: str
    at: float
    account: str
    route: str
    provider: str
    model: str
    policy_version: int
    """0 for none."""
    attempts: int
    status: int
    received: bytes
    """SHA-256 of the body that the client sent; 32 bytes, as the others."""
    sent: bytes
    """Of the body that went to the upstream whose answer it is; empty when nobody answered."""
    answered: bytes
    """Of the body that came back, as far as it came."""
    delivered: bytes
    """Of the body that the client was handed, before chunks; `answered`, unless a rule changed it or it was cut."""
    previous: bytes
    digest: bytes
