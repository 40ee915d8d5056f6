"""Operations on receipts: pages of them, one of them, and whether they are the ones that were written.

Nothing here changes any. They are added by `stages.receipts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck, Verification, given_head
from pointsman.core.control_errors import NotFound
from pointsman.core.receipt import RECEIPT_CHAIN, RECEIPTS_PURPOSE, Receipt
from pointsman.gateway.hash_chain import READ_AT_ONCE, page_length, verified
from pointsman.store.interface import Reader, Store


@dataclass(frozen=True, slots=True)
class ReceiptPage:
    """Receipts in the order that was asked for."""

    receipts: Sequence[Receipt]
    next: int
    """What `after` is for those behind them; 0: there are none."""


class Receipts:
    """Reads them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store.derive(RECEIPTS_PURPOSE)

    async def page(self, account: str, after: int, limit: int, *, newest_first: bool) -> ReceiptPage:
        """Those of an account behind a number. Raises InvalidRequest."""
        limit = page_length(limit, after, RECEIPT_CHAIN.nouns)
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
        check = ChainCheck(RECEIPT_CHAIN, self._key, after, given_head(head))

        async def behind(reader: Reader, number: int) -> Sequence[Receipt]:
            return await reader.receipts(account, number, READ_AT_ONCE, newest_first=False)

        async def noted(reader: Reader) -> ChainHead:
            return await reader.receipt_head(account)

        return await verified(self._store, check, behind, noted)
