"""The gateway's data listener in a thread of its own, for tests that drive it with blocking sockets."""

import asyncio
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.core.model_table import Entry, ModelAccess, ModelTable
from pointsman.core.reach import ONLY_PUBLIC
from pointsman.events.operation_log import OperationLog
from pointsman.events.operations_record import OperationJournal
from pointsman.gateway.data_listener import DataListener, Served
from pointsman.gateway.data_watching import WatchedPaths
from pointsman.proxy.ledger import QuotaLedger
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.proxy.model_reception import Models
from pointsman.proxy.stages import NO_STAGES
from pointsman.testing import FakeClock
from tests.support.raw_client import RawClient

T = TypeVar("T")
ENDS = ("infer_completed", "infer_failed", "infer_cancelled")
"""Exactly one for each request."""


async def healthy() -> bool:
    return True


class DataDoor:
    """Serves one port, in clear text or with TLS; its time stands still until it is told to move."""

    def __init__(
        self,
        is_healthy: Callable[[], Awaitable[bool]] = healthy,
        context: ssl.SSLContext | None = None,
        limits: Limits = DEFAULT_LIMITS,
        table: ModelTable = ModelTable(),  # noqa: B008  # frozen
    ) -> None:
        self.clock = FakeClock()
        self._is_healthy, self._context, self._limits = is_healthy, context, limits
        self.table = table
        self.is_open = True
        self.ledger: QuotaLedger = MemoryLedger()
        self.stages = NO_STAGES
        self.reach = ONLY_PUBLIC
        self.watched: WatchedPaths | None = None
        self.keys: dict[bytes, Entry] = {}
        self.mark = b""
        self.halted: frozenset[str] = frozenset()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._lines = io.StringIO()
        self._told = io.StringIO()
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="data door")

    def _access(self) -> ModelAccess:
        return ModelAccess({"default": self.table}, self.keys, self.halted)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the listener's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def __enter__(self) -> "DataDoor":
        self._thread.start()
        self.call(self._open())
        return self

    async def _open(self) -> None:
        self.log = OperationLog(lines=self._lines, wall_clock=time.time)
        models = Models(self._access, time.time, is_open=self.is_open, mark=self.mark)
        self.journal = OperationJournal(self._told, wall_clock=time.time, clock=self.clock)
        served = Served(
            models, self.ledger, journal=self.journal, stages=self.stages, watched=self.watched, reach=self.reach
        )
        self.listener = DataListener(self.log, self._is_healthy, served, limits=self._limits, clock=self.clock)
        await self.listener.serve(self._socket, self._context)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.call(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    async def _close(self) -> None:
        await self.listener.close()
        await asyncio.sleep(0.01)  # a turn for closed transports to say goodbye
        self.leftover = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    def connect(self) -> RawClient:
        return RawClient(socket.create_connection(self.address, 10))

    def halt(self, account: str) -> None:
        """As the gateway does it: nothing more is let in, then what runs is ended."""

        async def halt() -> None:
            self.halted |= {account}
            self.listener.halt(account)

        self.call(halt())

    def advance(self, seconds: float) -> None:
        """Let time pass, after the listener has taken all that was sent to it."""

        async def pass_time() -> None:
            for _ in range(12):
                await asyncio.sleep(0)
            self.clock.advance(seconds)
            self.listener.enforce_deadlines()

        self.call(pass_time())

    def logged(self) -> str:
        async def flush() -> None:
            self.log.flush()

        self.call(flush())
        return self._lines.getvalue()

    def operations(self) -> list[dict[str, Any]]:
        """The events of the operation log so far."""

        async def flush() -> None:
            self.journal.flush()

        self.call(flush())
        return [json.loads(line) for line in self._told.getvalue().splitlines()]

    def ended(self, count: int = 1, seconds: float = 5.0) -> list[dict[str, Any]]:
        """The events, once so many requests have ended."""
        until = time.monotonic() + seconds
        while True:
            events = self.operations()
            if sum(each["event"] in ENDS for each in events) >= count or time.monotonic() > until:
                return events
            time.sleep(0.005)
