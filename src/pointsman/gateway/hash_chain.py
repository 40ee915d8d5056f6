"""What operations on stored chains share: how long a page is, and how far one call verifies.

Which chains there are: `audit`, `receipts`. What fits in a chain and what does not: `core.chain_check`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pointsman.core.chain import ChainHead, Link
from pointsman.core.chain_check import ChainCheck, Verification
from pointsman.core.control_errors import InvalidRequest
from pointsman.store.interface import Reader, Store

DEFAULT_PAGE, LONGEST_PAGE = 100, 1000
MOST_CHECKED = 20_000
"""Rows that one call verifies, in about a second; whoever asks goes on."""
READ_AT_ONCE = 200
"""Rows that are verified between two turns of the loop, which requests share: some milliseconds."""
_LARGEST = 2**63
_Link = TypeVar("_Link", bound=Link)


def page_length(limit: int, after: int, nouns: str) -> int:
    """How many rows a page may have that begins behind the row `after`. Raises InvalidRequest."""
    if not 0 <= limit <= LONGEST_PAGE:
        raise InvalidRequest(f"limit is {limit}; it is at most {LONGEST_PAGE}, and 0 means {DEFAULT_PAGE}")
    if not 0 <= after < _LARGEST:
        raise InvalidRequest(f"after is the number of one of the {nouns}, or 0 for none")
    return limit or DEFAULT_PAGE


async def verified(
    store: Store,
    check: ChainCheck[_Link],
    behind: Callable[[Reader, int], Awaitable[Sequence[_Link]]],
    noted: Callable[[Reader], Awaitable[ChainHead | None]],
) -> Verification:
    """Give a check the rows behind its head, as far as one call may.

    `behind` reads the next `READ_AT_ONCE` behind a number, in order; `noted` what the database notes of the newest.
    """
    # From below any row that somebody may have put in front of the first.
    position, is_complete = check.head.sequence or -_LARGEST, False
    while not is_complete and check.checked < MOST_CHECKED:
        async with store.read() as reader:
            found = await behind(reader, position)
            is_complete = len(found) < READ_AT_ONCE
            head = await noted(reader) if is_complete else None
        before = position
        for row in found:
            check.add(row)
            position = max(position, row.sequence)
        if position == before and not is_complete:
            check.tell(
                f"behind number {max(0, before)} stand {READ_AT_ONCE} or more without a number: none was read on"
            )
            is_complete = True
        if is_complete:
            check.end_noted(head)
    return check.found(is_complete=is_complete)
