"""An entry of the audit record, and the chain that makes each depend on all before it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.core.chain import ChainHead, digest_over
from pointsman.core.chain_check import ChainKind

AUDIT_PURPOSE = b"audit"
"""What the record's key is derived from the key file for."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, to what. Before and after hold no secret: values of credentials are told by a word."""

    sequence: int
    """1, 2, 3 …, of the whole gateway, without a gap."""
    at: float
    """Seconds since the epoch."""
    account: str
    actor: str
    """`admin`, `key:NAME`, `sandbox:NAME`, `runner:NAME`, `file`, `anyone` where no key is asked for, or `gateway` for
    what it does by itself."""
    action: str
    """`provider.update`, `key.revoke`, `policy.block` …"""
    subject: str
    """The record's name, or the request's id."""
    before: str
    """JSON; empty for what was not there."""
    after: str
    """JSON; empty for what is gone."""
    previous: bytes
    """The digest of the entry before."""
    digest: bytes
    """Of this one: `digest_of_entry`."""


def digest_of_entry(entry: AuditEntry, key: bytes) -> bytes:
    """Over all but itself."""
    told = (entry.sequence, repr(entry.at), entry.account, entry.actor, entry.action, entry.subject)
    return digest_over((*told, entry.before, entry.after, entry.previous.hex()), key)


AUDIT_CHAIN = ChainKind("entry", "entries", digest_of_entry)


@dataclass(frozen=True, slots=True)
class AuditDraft:
    """What is to become an entry; its fields mean what an entry's do."""

    at: float
    account: str
    actor: str
    action: str
    subject: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries; an empty text means any."""

    limit: int
    after: int = 0
    """Only those with a greater sequence; newest first, with a smaller one, and 0 is the end."""
    account: str = ""
    actor: str = ""
    action: str = ""
    """A whole action, or the part before the dot: `key` is `key.create` and `key.revoke`."""
    subject: str = ""
    since: float = 0.0
    """Seconds since the epoch."""
    newest_first: bool = False


def chained(head: ChainHead, drafts: Sequence[AuditDraft], key: bytes) -> list[AuditEntry]:
    """The entries that follow a head, in the order of the drafts."""
    entries: list[AuditEntry] = []
    for draft in drafts:
        told = (draft.account, draft.actor, draft.action, draft.subject, draft.before, draft.after)
        bare = AuditEntry(head.sequence + 1, draft.at, *told, previous=head.digest, digest=b"")
        entry = replace(bare, digest=digest_of_entry(bare, key))
        entries.append(entry)
        head = ChainHead(entry.sequence, entry.digest)
    return entries
