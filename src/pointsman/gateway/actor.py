"""On whose behalf the gateway works now, for the audit record. Set where a protocol has identified its caller."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from pointsman.gateway.auth import Identity

GATEWAY = "gateway"
"""What nobody asked for: the gateway does it by itself."""
FILE = "file"
"""Whoever wrote the configuration file."""
_ACTOR: ContextVar[str] = ContextVar("actor", default=GATEWAY)


def actor() -> str:
    """Who, in the words of `core.audit.AuditEntry.actor`."""
    return _ACTOR.get()


@contextlib.contextmanager
def acting_as(who: str) -> Iterator[None]:
    """Within it, what is done is done by `who`."""
    before = _ACTOR.set(who)
    try:
        yield
    finally:
        _ACTOR.reset(before)


def actor_of(identity: Identity) -> str:
    """Who an identity is."""
    if identity.is_admin:
        return "admin"
    if identity.data_key is not None:
        return f"key:{identity.data_key.name}"
    return f"sandbox:{identity.sandbox_token.name}" if identity.sandbox_token is not None else GATEWAY
