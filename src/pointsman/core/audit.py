"""An entry of the audit record, and the chain that makes each depend on all before it. Pure."""

import hashlib
import json
from dataclasses import dataclass

GENESIS = bytes(32)
"""What the first entry depends on."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, to what. Before and after hold no secret: values of credentials are told by a word."""

    sequence: int
    """1, 2, 3 …, of the whole gateway, without a gap."""
    at: float
    """Seconds since the epoch."""
    account: str
    actor: str
    """`admin`, `key:NAME`, `sandbox:NAME`, `runner:NAME`, `file`, or `gateway` for what it does by itself."""
    action: str
    """`provider.update`, `key.revoke`, `policy.block` …"""
    subject: str
    """The record's name, or the request's id."""
    before: str
    """JSON; empty for what was not there."""
    after: str
    """JSON; empty for what is gone."""
    previous: bytes
    """The hash of the entry before."""
    digest: bytes
    """Of this one: `digest_of_entry`."""


def digest_of_entry(entry: AuditEntry, key: bytes) -> bytes:
    """BLAKE2b, keyed, over all but itself: whoever has no key file cannot make a chain that verifies."""
    told = (entry.sequence, repr(entry.at), entry.account, entry.actor, entry.action, entry.subject)
    fields = [*told, entry.before, entry.after, entry.previous.hex()]
    text = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
    return hashlib.blake2b(text, key=key, digest_size=32).digest()
