"""The stages `receipt_open` and `receipt` of the data listener: hashes are gathered, receipts written behind requests.

Owns which requests get a receipt, when receipts are written, and how many may wait while the store is away. What is
hashed is `core.body_hashes`', told by whoever sends and relays; how receipts are chained the store's.
"""

import asyncio
import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.control_errors import ControlError
from pointsman.core.fault_place import fault_place
from pointsman.core.receipt import Receipt, ReceiptScope
from pointsman.events.printable import printable
from pointsman.events.record import Record
from pointsman.proxy.background import finishing
from pointsman.proxy.stages import Passage
from pointsman.store.interface import Store

WRITTEN_AT_ONCE = 2000
"""Receipts of one transaction: a commit may take as long as a thousand requests."""
WAIT_SECONDS = 0.5
"""From a request's end to its receipt's write: what a gateway that is killed loses."""
MOST_WAITING = 20_000
"""Receipts that are kept while the store is away, about 20 MiB; more are lost, and counted."""
RETRY_SECONDS = 1.0
LARGE_BODY = 512 * 1024
"""Hashed in a thread, for it takes a millisecond or two."""
_STOP_SECONDS = 5.0
_LONGEST = 256  # characters of a model's name; a client may have chosen it


class ReceiptStages:
    """For one data listener."""

    def __init__(
        self, scope: ReceiptScope, store: Store, say: Callable[[str], None], most_waiting: int = MOST_WAITING
    ) -> None:
        self._scope = scope
        self._store = store
        self._say = say
        self._most_waiting = most_waiting
        self._waiting: deque[Receipt] = deque()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._again = False
        """Whether the last write failed: it may have been made all the same."""
        self._is_full = False
        self.lost = 0
        """Receipts that were given up since the start."""

    async def open(self, passage: Passage) -> None:
        """The stage `receipt_open`."""
        if self._scope.covers(passage.record.route):
            body = passage.request.body
            if len(body) < LARGE_BODY:
                received = hashlib.sha256(body).digest()
            else:
                received = (await asyncio.to_thread(hashlib.sha256, body)).digest()
            passage.notes.hashes = BodyHashes(received)

    def close(self, record: Record) -> None:
        """The stage `receipt`."""
        notes = record.notes
        if notes is None or notes.hashes is None:
            return
        try:
            self.add(receipt_of(record, notes.hashes))
        except Exception as error:  # requests end here, and must
            self._lose(1, f"internal error: {fault_place(error)}")

    def add(self, receipt: Receipt) -> None:
        """To be written soon."""
        if len(self._waiting) >= self._most_waiting:
            if not self._is_full:
                self._is_full = True
                self._say(f"receipts: {self._most_waiting} wait for the database; more are lost until it answers")
            self.lost += 1
            return
        self._waiting.append(receipt)
        self._wake.set()

    async def follow(self) -> None:
        """Write what ends, in batches, until `stop`; then what is left."""
        while not self._stopping.is_set():
            await self._wake.wait()
            await self._pause(WAIT_SECONDS)
            self._wake.clear()
            while self._waiting and not self._stopping.is_set():
                if not await self.write():
                    await self._pause(RETRY_SECONDS)
        while self._waiting and await self.write():
            pass

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def write(self) -> bool:
        """Whether the store took one batch, of what waits now. One at a time."""
        batch = list(itertools.islice(self._waiting, WRITTEN_AT_ONCE))
        if not batch:
            return True
        try:
            await self._store.append_receipts(batch, again=self._again)
        except ControlError as error:
            if not self._again:
                self._say(f"receipts: they wait for the database: {error.text}")
            self._again = True
            return False
        except Exception as error:
            # A batch that can never be written must not keep those behind it.
            self._lose(len(batch), f"internal error: {fault_place(error)}")
        for _ in batch:
            self._waiting.popleft()
        if self._again or (self._is_full and not self._waiting):
            self._again = self._is_full = False
            self._say(f"receipts: they are written again; {self.lost} were lost since the start")
        return True

    def stop(self) -> None:
        """Let `follow` write what is left, and end."""
        self._stopping.set()
        self._wake.set()

    def give_up(self) -> None:
        """Count and tell what nobody will write any more."""
        if self._waiting:
            self._lose(len(self._waiting), "the database did not take them before the end")
            self._waiting.clear()

    def _lose(self, number: int, reason: str) -> None:
        self.lost += number
        self._say(f"receipts: lost: {number}: {reason}")


@contextlib.asynccontextmanager
async def keeping_receipts(stages: ReceiptStages) -> AsyncIterator[None]:
    """Writes until it is left; then writes what is left, for 5 s at most."""
    try:
        async with finishing(stages.follow(), "receipts", stages.stop, _STOP_SECONDS):
            yield
    finally:
        stages.give_up()


def receipt_of(record: Record, hashes: BodyHashes) -> Receipt:
    """What is told of a request that has ended, before it has its place in a chain."""
    answering = record.candidate if record.is_answered else None
    return Receipt(
        0,
        record.request_id,
        record.time + record.seconds,
        record.caller.account,
        record.route,
        answering.provider if answering is not None else "",
        printable(answering.model, _LONGEST) if answering is not None else "",
        record.notes.policy_version if record.notes is not None else 0,
        record.attempts,
        record.status,
        hashes.received,
        hashes.sent if answering is not None else b"",
        *hashes.ends(),
    )
