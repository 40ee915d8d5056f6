"""What a layer on top of a store leaves to that store. What it changes of it is the layer's own."""

from collections.abc import Callable, Sequence

from pointsman.core.audit import AuditDraft
from pointsman.core.chain import ChainHead
from pointsman.core.receipt import Receipt
from pointsman.core.usage_row import UsageRow
from pointsman.store.interface import Store


class StoreLayer:
    """A Store on top of another, but for its views and its transactions. See Store for what each does."""

    def __init__(self, store: Store) -> None:
        self.kind = store.kind
        self._store = store

    async def generation(self) -> int:
        """The store's."""
        return await self._store.generation()

    def when_committed(self, tell: Callable[[], None]) -> None:
        """The store's."""
        self._store.when_committed(tell)

    async def append_usage(self, rows: Sequence[UsageRow], *, again: bool = False) -> None:
        """The store's."""
        await self._store.append_usage(rows, again=again)

    async def prune_usage(self, before: float) -> int:
        """The store's."""
        return await self._store.prune_usage(before)

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        """The store's."""
        return await self._store.append_audit(drafts)

    async def append_receipts(self, drafts: Sequence[Receipt], *, again: bool) -> None:
        """The store's."""
        await self._store.append_receipts(drafts, again=again)

    async def note_runner_seen(self, runner_id: str, at: float) -> None:
        """The store's."""
        await self._store.note_runner_seen(runner_id, at)

    def derive(self, purpose: bytes) -> bytes:
        """The store's."""
        return self._store.derive(purpose)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
