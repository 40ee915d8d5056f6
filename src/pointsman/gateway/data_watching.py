"""`/stats/live`, `/stats/history` and `/health/providers` on the data listener, as InferRouter's clients expect them.

They are there when the gateway runs from InferRouter's configuration, and tell of the caller's account alone. Nothing
is loaded by looking; whoever reaches the listener may look, and what is costly to find out is kept for a while.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from pointsman.core.control_errors import ControlError
from pointsman.events.account_lines import AccountLines
from pointsman.events.operations_file import DayPieces
from pointsman.gateway.provider_health import health_answer
from pointsman.gateway.stats import live_answer
from pointsman.gateway.watching import Watching
from pointsman.proxy.client_connection import ClientConnection, without_body
from pointsman.wire.openai_error import openai_error_body
from pointsman.wire.request import Request
from pointsman.wire.response import json_answer

LIVE, HISTORY, HEALTH = "/stats/live", "/stats/history", "/health/providers"
_TEXT_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\n"
_LONGEST_QUERY = 256


@dataclass(frozen=True, slots=True)
class Look:
    """A request for one of the paths, by someone whose account is known."""

    paths: "WatchedPaths"
    path: str
    query: str
    account: str


class WatchedPaths:
    """Answers them. `is_served` tells whether they are there now."""

    def __init__(self, watching: Watching, is_served: Callable[[], bool]) -> None:
        self._watching = watching
        self._is_served = is_served

    def has(self, path: str) -> bool:
        """Whether a path is one of them."""
        return path in (LIVE, HISTORY, HEALTH) and self._is_served()

    async def serve(self, look: Look, request: Request, client: ClientConnection, own: bytes) -> None:
        """Answer one request; `own` are further header lines."""
        try:
            if look.path == HISTORY:
                pieces = await self._watching.history(_wanted_day(look.query))
                await _send(pieces, look.account, request, client, own)
                return
            status, body = 200, await self._body(look)
        except ControlError as error:
            status = error.http_status
            body = openai_error_body(status, error.text, error.code.lower())
        answer = json_answer(status, body, own, keep_alive=client.keep_alive)
        client.write(without_body(answer) if request.head.method == "HEAD" else answer)

    async def _body(self, look: Look) -> bytes:
        watching = self._watching
        if look.path == LIVE:
            return msgspec.json.encode(live_answer(await watching.sources.live_rows(), look.account))
        return msgspec.json.encode(health_answer(await watching.health.look(look.account)))


def _wanted_day(query: str) -> str | None:
    if len(query) > _LONGEST_QUERY:
        return ""
    found = parse_qs(query, keep_blank_values=True).get("date")
    return None if found is None else found[-1]


class _Tap:
    """Lets pieces go out while the client takes them."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    async def opened(self) -> None:
        await self._open.wait()


async def _send(pieces: DayPieces, account: str, request: Request, client: ClientConnection, own: bytes) -> None:
    head, lines, tap = request.head, AccountLines(account), _Tap()
    is_chunked = head.minor > 0
    client.keep_alive = client.keep_alive and is_chunked
    fields = b"transfer-encoding: chunked\r\n" if is_chunked else b""
    client.write(_TEXT_HEAD + fields + (b"" if client.keep_alive else b"connection: close\r\n") + own + b"\r\n")
    client.attach(tap)
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(None, _next, pieces, lines)
    try:
        while head.method != "HEAD" and (piece := await asyncio.shield(reading)):
            client.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            await tap.opened()
            reading = loop.run_in_executor(None, _next, pieces, lines)
        if is_chunked and head.method != "HEAD":
            client.write(b"0\r\n\r\n")
    except OSError:  # the disk; the head has gone out, so that only the framing can tell
        client.cut(visibly=not is_chunked)
    finally:
        # Not under the hands of a thread that reads.
        reading.add_done_callback(lambda _: pieces.close())


def _next(pieces: DayPieces, lines: AccountLines) -> bytes:
    """The account's next lines; nothing at the end. Blocks."""
    for piece in pieces:
        if kept := lines.of(piece):
            return kept
    return b""
