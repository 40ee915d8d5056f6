"""The bus of a gateway that is one process."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from pointsman.bus.answer import Answer, answered, settle
from pointsman.bus.interface import MAX_PAYLOAD_BYTES, BusUnavailable, Handler, NoResponder


class MemoryBus:
    """Handlers by subject. `say` hears of handlers that fail."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._handlers: dict[str, list[Handler]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[Answer] = set()
        self._closed = False

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """See Bus."""
        handlers = self._takers(subject, payload)
        if not handlers:
            raise NoResponder(f"nobody serves {subject}")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            for handler in handlers:
                self._start(self._answer(subject, handler, payload, answer))
            return await answered(answer, subject, timeout_seconds)
        finally:
            self._waiting.discard(answer)

    async def publish(self, subject: str, payload: bytes) -> None:
        """See Bus."""
        for handler in self._takers(subject, payload):
            self._start(self._answer(subject, handler, payload, None))

    def _takers(self, subject: str, payload: bytes) -> tuple[Handler, ...]:
        if self._closed:
            raise BusUnavailable("the bus is closed")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BusUnavailable(f"a message of {len(payload)} bytes; the bus carries {MAX_PAYLOAD_BYTES}")
        return tuple(self._handlers.get(subject, ()))

    async def _answer(self, subject: str, handler: Handler, payload: bytes, answer: Answer | None) -> None:
        try:
            given = await handler(payload)
            if len(given) > MAX_PAYLOAD_BYTES:
                raise ValueError("the answer is too large")
        except Exception as error:
            self._say(f"bus: whoever serves {subject} failed: {type(error).__name__}")
            return
        if answer is not None:
            settle(answer, given)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def serve(self, subject: str, handler: Handler) -> "MemorySubscription":
        """See Bus."""
        if self._closed:
            raise BusUnavailable("the bus is closed")
        self._handlers.setdefault(subject, []).append(handler)
        return MemorySubscription(self._handlers, subject, handler)

    def when_lost(self, tell: Callable[[], None]) -> None:
        """See Bus. There is no line to lose."""

    async def close(self) -> None:
        """See Bus."""
        self._closed = True
        for answer in self._waiting:
            settle(answer, BusUnavailable("the bus was closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


class MemorySubscription:
    """See Subscription."""

    def __init__(self, handlers: dict[str, list[Handler]], subject: str, handler: Handler) -> None:
        self._handlers = handlers
        self._subject = subject
        self._handler = handler

    async def close(self) -> None:
        """See Subscription."""
        found = self._handlers.get(self._subject, [])
        if self._handler in found:
            found.remove(self._handler)
        if not found:
            self._handlers.pop(self._subject, None)
