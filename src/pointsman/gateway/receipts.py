"""Operations on receipts: pages of them, one of them, and whether they are the ones that were written.

Nothing here changes any. They are added by `stages.receipts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck
from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.core.receipt import RECEIPT_CHAIN, RECEIPTS_PURPOSE, Receipt
from pointsman.store.interface import Store

DEFAULT_PAGE, LONGEST_PAGE = 100, 1000
MOST_CHECKED = 20_000
"""Receipts that one call verifies, in about a second; whoever asks goes on."""
READ_AT_ONCE = 200
"""Receipts that are verified between two turns of the loop, which requests share: some milliseconds."""
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class ReceiptPage:
    """Receipts in the order that was asked for."""

    receipts: Sequence[Receipt]
    next: int
    """What `after` is for those behind them; 0: there are none."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in one part of an account's receipts."""

    problems: Sequence[str]
    problem_count: int
    checked: int
    head: ChainHead
    """The last receipt of the part: to go on from, and at the end to be kept."""
    is_complete: bool
    """Whether they end there."""


class Receipts:
    """Reads them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store.derive(RECEIPTS_PURPOSE)

    async def page(self, account: str, after: int, limit: int, *, newest_first: bool) -> ReceiptPage:
        """Those of an account behind a number. Raises InvalidRequest."""
        if not 0 <= limit <= LONGEST_PAGE:
            raise InvalidRequest(f"limit is {limit}; it is at most {LONGEST_PAGE}, and 0 means {DEFAULT_PAGE}")
        if not 0 <= after < _LARGEST:
            raise InvalidRequest("after is a receipt's number, or 0 for none")
        limit = limit or DEFAULT_PAGE
        async with self._store.read() as reader:
            found = await reader.receipts(account, after, limit, newest_first=newest_first)
        return ReceiptPage(found, found[-1].sequence if len(found) == limit else 0)

    async def get(self, account: str, request_id: str) -> Receipt:
        """The one of a request. Raises NotFound."""
        async with self._store.read() as reader:
            found = await reader.receipt(account, request_id)
        if found is None:
            raise NotFound(
                f"there is no receipt of the request {request_id[:64]!r}; see 'pointsman receipt list', and the "
                "setting receipts for which routes give them"
            )
        return found

    async def verify(self, account: str, after: ChainHead = NO_HEAD, head: ChainHead | None = None) -> Verification:
        """Recompute the chain behind `after`, as far as one call may; `head` is one that the caller has kept."""
        kept = [] if head is None else [(head, "the head that was given")]
        check = ChainCheck(RECEIPT_CHAIN, self._key, after, kept)
        is_complete, position = False, after.sequence or -_LARGEST
        while not is_complete and check.checked < MOST_CHECKED:
            async with self._store.read() as reader:
                found = await reader.receipts(account, position, READ_AT_ONCE, newest_first=False)
                is_complete = len(found) < READ_AT_ONCE
                noted = await reader.receipt_head(account) if is_complete else NO_HEAD
            for receipt in found:
                check.add(receipt)
                position = receipt.sequence
            if is_complete:
                check.end_noted(noted)
        return Verification(check.problems, check.problem_count, check.checked, check.head, is_complete)
