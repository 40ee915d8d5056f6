"""Providers that write down what they did: how often they were asked, whom they answered, which tokens they told.

A request's member `play` says what each provider is to do with it, so that a client may ask for any fault. Owns the
four generating dialects' answers with usage, and the books; who asks, and what the books must agree with, is
`budget_world`'s.
"""

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.fault_upstream import reset

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "chat/completions", "completions", "responses", "messages"
DIALECTS = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
FIRST, SECOND = "first", "second"
PRICES = {FIRST: (3000, 750, 12_000, 0), SECOND: (1000, 1000, 5000, 2_000_000)}
"""Of a token that was not kept, one that was, one of the answer, and of each request; in billionths."""
_WORDS = 4
_ERRORS = {"429": b"Retry-After: 1\r\n", "500": b"", "401": b"", "422": b"", "500-said": b""}
_ANSWERED_ERRORS = ("422", "500-said")
"""The client's answer, since the request is at fault or nobody else is left."""


@dataclass(frozen=True, slots=True)
class Told:
    """The tokens that an answer names."""

    input: int
    cached: int
    output: int

    @property
    def total(self) -> int:
        """As a budget counts them."""
        return self.input + self.output

    def money(self, provider: str) -> int:
        """At `PRICES`, in billionths."""
        fresh, kept, out, request = PRICES[provider]
        return (self.input - self.cached) * fresh + self.cached * kept + self.output * out + request


def told_by(number: int) -> Told:
    """Of the request with this number."""
    return Told(9 + number % 17, 2 + number % 5, 3 + number % 11)


@dataclass(slots=True)
class Spent:
    """One request that was answered, or whose client left."""

    provider: str
    received: int
    """Bytes of its body."""
    told: Told | None
    """None: the provider could not, or did not, tell all of it."""
    sent: int = 0
    """Bytes of the answer's body."""


@dataclass(slots=True)
class Books:
    """Of one route, by the request's number."""

    calls: int = 0
    spent: dict[int, Spent] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of those that were told."""
        return sum(each.told.total for each in self.spent.values() if each.told is not None)

    @property
    def money(self) -> int:
        """Of those whose tokens were told, in billionths."""
        return sum(each.told.money(each.provider) for each in self.spent.values() if each.told is not None)

    @property
    def untold(self) -> Sequence[Spent]:
        """Those whose tokens have to be reckoned."""
        return [each for each in self.spent.values() if each.told is None]


class SpendingUpstream:
    """Both providers on one port, told apart by the first step of the path."""

    def __init__(self) -> None:
        self.books: defaultdict[str, Books] = defaultdict(Books)
        self.reached: defaultdict[tuple[str, int], asyncio.Event] = defaultdict(asyncio.Event)
        """By route and number: that a provider has the request, and will not answer."""
        self.exact: dict[str, Told] = {}
        """By route: what the step `exact` tells."""
        self.port = 0
        self._tries: Counter[tuple[str, str, int]] = Counter()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve one port."""
        writers: set[asyncio.StreamWriter] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            try:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    while await self._one(reader, writer):
                        pass
            finally:
                writers.discard(writer)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for writer in writers:
                writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET "):  # a gateway that starts asks whether anybody is there
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            return True
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        _, provider, _, dialect = head.split(b" ", 2)[1].decode().split("/", 3)
        asked = json.loads(body)
        route, number = asked["play"]["route"], asked["play"]["number"]
        books, steps = self.books[route], asked["play"][provider]
        step = steps[min(self._tries[route, provider, number], len(steps) - 1)]
        self._tries[route, provider, number] += 1
        books.calls += 1
        spent = Spent(provider, length, None)
        if step not in _ERRORS and step not in ("reset", "error-event"):
            books.spent[number] = spent
        if step in _ERRORS:
            if step in _ANSWERED_ERRORS:
                books.spent[number] = Spent(provider, length, Told(0, 0, 0))
            writer.write(b"HTTP/1.1 %b No\r\n%bContent-Length: 2\r\n\r\n{}" % (step[:3].encode(), _ERRORS[step]))
            return True
        if step == "reset":
            return reset(writer)
        if step == "silent":
            self.reached[route, number].set()
            await _gone(reader)
            return False
        told = self.exact[route] if step == "exact" else told_by(number)
        play = _Play(step, dialect, told, spent, reader, writer)
        return await (play.stream() if asked["stream"] else play.whole())


@dataclass(frozen=True, slots=True)
class _Play:
    """One answer that begins as a success."""

    step: str
    dialect: str
    told: Told
    spent: Spent
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def whole(self) -> bool:
        told = None if self.step == "bare" else self.told
        body = json.dumps(_answer(self.dialect, told)).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        if self.step in ("cut", "lingers"):
            self.spent.sent = len(body) // 2
            self.writer.write(head + body[: len(body) // 2])
            await self.writer.drain()
            if self.step == "lingers":
                await _gone(self.reader)
            return False
        self.spent.sent = len(body)
        self.spent.told = told
        self.writer.write(head + body)
        await self.writer.drain()
        return True

    async def stream(self) -> bool:
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if self.step == "error-event":
            self._chunk(b'data: {"error": {"message": "overloaded"}}\n\n')
            self.writer.write(b"0\r\n\r\n")
            return True
        told = None if self.step == "bare" else self.told
        events = list(_events(self.dialect, told))
        if self.step in ("cut", "lingers"):
            events = events[: -1 - ENDING.get(self.dialect, 0)]
        for event in events[:-1] if self.step == "told-cut" else events:
            self._chunk(event)
        if self.step in ("answer", "told-cut"):
            self.spent.told = told
        await self.writer.drain()
        if self.step == "lingers":
            await _gone(self.reader)
        if self.step == "open-end":  # the last event has gone out, and the connection stays as it is
            self.spent.told = told
            await _gone(self.reader)
        if self.step in ("cut", "told-cut", "lingers", "open-end"):
            return False
        self.writer.write(b"0\r\n\r\n")
        return True

    def _chunk(self, data: bytes) -> None:
        self.spent.sent += len(data)
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _gone(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass


def _usage(dialect: str, told: Told) -> dict[str, Any]:
    if dialect == MESSAGES:
        fresh = told.input - told.cached
        return {"input_tokens": fresh, "cache_read_input_tokens": told.cached, "output_tokens": told.output}
    if dialect == RESPONSES:
        details = {"input_tokens_details": {"cached_tokens": told.cached}, "output_tokens": told.output}
        return {"input_tokens": told.input, **details, "output_tokens_details": {"reasoning_tokens": 1}}
    kept = {"prompt_tokens_details": {"cached_tokens": told.cached}}
    return {"prompt_tokens": told.input, "completion_tokens": told.output, **kept}


def _answer(dialect: str, told: Told | None) -> dict[str, Any]:
    text = "word " * 40
    usage = {} if told is None else {"usage": _usage(dialect, told)}
    match dialect:
        case "chat/completions":
            return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], **usage}
        case "completions":
            return {"choices": [{"text": text, "finish_reason": "stop"}], **usage}
        case "responses":
            return {"object": "response", "output": [{"content": text}], "status": "completed", **usage}
        case _:
            return {"type": "message", "content": [{"type": "text", "text": text}], **usage}


ENDING = {CHAT: 2, COMPLETIONS: 2, MESSAGES: 1}
"""Events that tell the end and usage, and come before the last; in other dialects the last one tells it."""


def _events(dialect: str, told: Told | None) -> Iterator[bytes]:
    """A whole stream; the last of them is the one behind which clients stop reading."""
    usage = {} if told is None else {"usage": _usage(dialect, told)}
    filler = "x" * 80
    if dialect in (CHAT, COMPLETIONS):
        for _ in range(_WORDS):
            yield _event({"choices": [{"delta": {"content": "word "}, "text": "word "}], "filler": filler})
        yield _event({"choices": [{"delta": {}, "text": "", "finish_reason": "stop"}]})
        if usage:
            yield _event({"choices": [], **usage})
        yield b"data: [DONE]\n\n"
        return
    if dialect == RESPONSES:
        yield _event({"type": "response.created", "response": {"status": "in_progress", "usage": None}})
        for _ in range(_WORDS):
            yield _event({"type": "response.output_text.delta", "delta": "word ", "filler": filler})
        yield _event({"type": "response.completed", "response": {"status": "completed", **usage}})
        return
    start = {"usage": {**usage["usage"], "output_tokens": 1}} if usage else {}
    yield _event({"type": "message_start", "message": {"content": [], **start}})
    for _ in range(_WORDS):
        yield _event({"type": "content_block_delta", "delta": {"text": "word "}, "filler": filler})
    last = {"usage": {"output_tokens": told.output}} if told is not None else {}
    yield _event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **last})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()
