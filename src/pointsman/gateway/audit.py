"""Operations on the audit record: pages of it, and whether it is the one that was written.

Nothing here changes it. Entries are added by `audit_layer`, `configuration_audit` and `stages.decisions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pointsman.core.audit import AUDIT_CHAIN, AUDIT_PURPOSE, AuditEntry, AuditQuery
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck, Verification, given_head
from pointsman.core.control_errors import InvalidRequest, StoreUnavailable
from pointsman.gateway.hash_chain import READ_AT_ONCE, page_length, verified
from pointsman.store.interface import Reader, Store

MOST_PAGE_CHARACTERS = 1024 * 1024
"""Of before and after together; a page has one entry at least, and a message of gRPC at most 4 MiB."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries in the order that was asked for."""

    entries: Sequence[AuditEntry]
    next: int
    """What `after` is for those behind them; 0: there are none."""


class Audit:
    """Reads the record."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store.derive(AUDIT_PURPOSE)
        self._kept_head: Callable[[], tuple[ChainHead, str] | None] = lambda: None

    def look_at(self, kept_head: Callable[[], tuple[ChainHead, str] | None]) -> None:
        """From now on: the head that the gateway keeps outside of the store, and where; it may raise ValueError and
        OSError."""
        self._kept_head = kept_head

    async def page(self, query: AuditQuery) -> AuditPage:
        """Entries that a query takes. Raises InvalidRequest."""
        limit = page_length(query.limit, query.after, AUDIT_CHAIN.nouns)
        if any("\0" in text for text in (query.actor, query.action, query.subject)):  # PostgreSQL takes it for a fault
            raise InvalidRequest("actor, action and subject hold no NUL")
        async with self._store.read() as reader:
            found = await reader.audit(replace(query, limit=limit))
        room, taken = MOST_PAGE_CHARACTERS, 0
        for entry in found:
            room -= len(entry.before) + len(entry.after)
            if room < 0 and taken:
                break
            taken += 1
        is_last = taken == len(found) < limit
        return AuditPage(found[:taken], 0 if is_last else max(0, found[taken - 1].sequence))

    async def verify(self, after: ChainHead = NO_HEAD, head: ChainHead | None = None) -> Verification:
        """Recompute the chain behind `after`, as far as one call may; `head` is one that the caller has kept."""
        kept = given_head(head)
        unreadable = ""
        try:
            own = self._kept_head()
            kept += [own] if own is not None else []
        except (OSError, ValueError) as error:
            unreadable = f"the head that the gateway keeps cannot be read: {error}"
        check = ChainCheck(AUDIT_CHAIN, self._key, after, kept)
        if unreadable:
            check.tell(unreadable)
        return await verified(self._store, check, _behind, _noted)


async def _behind(reader: Reader, number: int) -> Sequence[AuditEntry]:
    return await reader.audit(AuditQuery(READ_AT_ONCE, after=number))


async def _noted(reader: Reader) -> ChainHead | None:
    try:
        return await reader.audit_head()
    except StoreUnavailable:  # the rows could be read
        return None
