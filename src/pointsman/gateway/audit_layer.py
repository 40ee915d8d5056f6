"""The store as operations get it: every change of a record is noted in the audit record, in its own transaction.

Owns that no change goes without an entry: a write that `audited_writes` does not know cannot be called. What an entry
tells is `core.audited`'s, who did it `actor`'s.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pointsman.core.audit import AuditDraft
from pointsman.core.audited import told
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import StoreUnavailable
from pointsman.gateway.actor import actor
from pointsman.gateway.audited_writes import AUDITED, AuditedWrite, account_of, action_of, subject_of
from pointsman.gateway.store_layer import StoreLayer
from pointsman.store.interface import Reader, Store, Writer

_LOOKUPS = frozenset(write.lookup for write in AUDITED.values() if write.lookup)
_READS = frozenset(name for name in dir(Reader) if not name.startswith("_"))


class AuditLayer(StoreLayer):
    """A Store on top of another. `clock` gives seconds since the epoch; `noted` hears of every new head."""

    def __init__(
        self, store: Store, clock: Callable[[], float], noted: Callable[[ChainHead], None] = lambda head: None
    ) -> None:
        super().__init__(store)
        self._clock = clock
        self._noted = noted

    def read(self) -> AbstractAsyncContextManager[Reader]:
        """A view of now."""
        return self._store.read()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Writer]:
        """A transaction of the store's, with an entry for each change at its end."""
        head = None
        async with self._store.write() as writer:
            noting = _NotingWriter(writer, self._clock)
            # It has what a writer has by looking each name up, which no type can tell.
            yield cast("Writer", noting)
            if noting.drafts:
                head = await writer.append_audit(noting.drafts)
        if head is not None:
            self._noted(head)

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        """The store's."""
        head = await super().append_audit(drafts)
        self._noted(head)
        return head


@dataclass(frozen=True, slots=True)
class _Unreadable:
    account: str
    name: str
    is_unreadable: bool = True


class _NotingWriter:
    """A writer's reads as they are, its audited writes with a note, and nothing else."""

    def __init__(self, writer: Writer, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self.drafts: list[AuditDraft] = []
        self._seen: dict[tuple[Any, ...], Any] = {}
        """Records that were looked up and cannot have changed since: writers take turns. Most operations look first."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name in _LOOKUPS:
            return partial(self._look_up, name)
        if name in _READS:
            return cast("Callable[..., Awaitable[Any]]", getattr(self._writer, name))
        write = AUDITED.get(name)
        if write is None:
            raise AttributeError(f"{name} is not told of in the audit record; see gateway.audited_writes")

        return partial(self._write, name, write)

    async def _look_up(self, *named: Any) -> Any:
        if named not in self._seen:
            self._seen[named] = await getattr(self._writer, named[0])(*named[1:])
        return self._seen[named]

    async def _write(self, name: str, write: AuditedWrite, *arguments: Any) -> Any:
        before = await self._before(write, arguments) if write.lookup else None
        self._seen.clear()
        result = await getattr(self._writer, name)(*arguments)
        if result is not False:
            self._note(write, before, write.after(before, arguments, result))
        return result

    async def _before(self, write: AuditedWrite, arguments: tuple[Any, ...]) -> Any:
        wanted = write.wanted(arguments)
        try:
            return write.before(await self._look_up(write.lookup, *wanted), arguments)
        except StoreUnavailable:
            # A credential that was altered cannot be read, and its record can be deleted all the same.
            return _Unreadable(wanted[0], wanted[-1])

    def _note(self, write: AuditedWrite, before: Any, after: Any) -> None:
        known = after if after is not None else before
        action = action_of(write, before, after)
        subject = subject_of(known, action.partition(".")[0])
        self.drafts.append(AuditDraft(self._clock(), account_of(known), actor(), action, subject, *told(before, after)))
