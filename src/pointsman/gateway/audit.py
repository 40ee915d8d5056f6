"""Operations on the audit record: pages of it, and whether it is the one that was written.

Nothing here changes it. Entries are added by `audit_layer`, `configuration_audit` and `stages.decisions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pointsman.core.audit import AUDIT_CHAIN, AUDIT_PURPOSE, AuditEntry, AuditQuery
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck
from pointsman.core.control_errors import InvalidRequest, StoreUnavailable
from pointsman.store.interface import Reader, Store

DEFAULT_PAGE, LONGEST_PAGE = 100, 1000
MOST_PAGE_CHARACTERS = 1024 * 1024
"""Of before and after together; a page has one entry at least, and a message of gRPC at most 4 MiB."""
MOST_CHECKED = 20_000
"""Entries that one call verifies, in about a second; whoever asks goes on."""
READ_AT_ONCE = 200
"""Entries that are verified between two turns of the loop, which requests share: some milliseconds."""
_FIRST = -(2**63)
"""Below any row that somebody may have put in front of the first."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries in the order that was asked for."""

    entries: Sequence[AuditEntry]
    next: int
    """What `after` is for those behind them; 0: there are none."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in one part of the record."""

    problems: Sequence[str]
    problem_count: int
    checked: int
    head: ChainHead
    """The last entry of the part: to go on from, and of the whole record to be kept."""
    is_complete: bool
    """Whether the record ends there."""


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
        if not 0 <= query.limit <= LONGEST_PAGE:
            raise InvalidRequest(f"limit is {query.limit}; it is at most {LONGEST_PAGE}, and 0 means {DEFAULT_PAGE}")
        if not 0 <= query.after < 2**63:
            raise InvalidRequest("after is an entry's number, or 0 for none")
        if any(
            "\0" in text for text in (query.actor, query.action, query.subject)
        ):  # which PostgreSQL takes for a fault
            raise InvalidRequest("actor, action and subject hold no NUL")
        limit = query.limit or DEFAULT_PAGE
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
        kept = [] if head is None else [(head, "the head that was given")]
        unreadable = ""
        try:
            own = self._kept_head()
            kept += [own] if own is not None else []
        except (OSError, ValueError) as error:
            unreadable = f"the head that the gateway keeps cannot be read: {error}"
        check = ChainCheck(AUDIT_CHAIN, self._key, after, kept)
        is_complete = False
        position = after.sequence or _FIRST
        while not is_complete and check.checked < MOST_CHECKED:
            async with self._store.read() as reader:
                found = await reader.audit(AuditQuery(READ_AT_ONCE, after=position))
                is_complete = len(found) < READ_AT_ONCE
                noted = await _noted(reader) if is_complete else None
            for entry in found:
                check.add(entry)
                position = entry.sequence
            if is_complete:
                check.end_noted(noted)
        problems = [*([unreadable] if unreadable else []), *check.problems]
        return Verification(problems, check.problem_count + bool(unreadable), check.checked, check.head, is_complete)


async def _noted(reader: Reader) -> ChainHead | None:
    try:
        return await reader.audit_head()
    except StoreUnavailable:  # the rows could be read
        return None
