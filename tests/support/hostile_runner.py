"""A runner that keeps to no rule: a websocket made by hand, and what it does to a gateway with it. Also a program.

    python -m tests.support.hostile_runner

reads {"port": …, "runner": …, "token": …, "act": …} as one line, dials in, and does that. An act that waits for a
request says hello first; what comes after it is answered as it should be, so that whoever looks sees whether the line
still works. Another line, SECONDS, ends it when the gateway has closed or they are over; what it writes then is
{"closed": CODE or null, "operations": […]}.
"""

import asyncio
import base64
import contextlib
import json
import os
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any

EVIL = "words-of-a-hostile-runner"
"""Must show nowhere."""
CONTINUATION, TEXT, BINARY, CLOSE, PING = 0, 1, 2, 8, 9
_FIN, _MASKED = 0x80, 0x80
_MASK = b"\0\0\0\0"
"""It changes nothing, so that a frame costs its sender little."""
_BATCH = 1 << 16
_FLOOD_FRAMES = 400_000
_CLOSED_WITHOUT_CODE = 1005


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, mask: bool = True, reserved: int = 0) -> bytes:
    """One frame, right or wrong."""
    head = bytes([(_FIN if fin else 0) | reserved << 4 | opcode])
    size, masked = len(payload), _MASKED if mask else 0
    if size < 126:
        head += bytes([masked | size])
    elif size < 1 << 16:
        head += struct.pack(">BH", masked | 126, size)
    else:
        head += struct.pack(">BQ", masked | 127, size)
    return head + (_MASK if mask else b"") + payload


def text(message: object) -> bytes:
    """A message in one frame: an object as JSON, or what is text already."""
    if isinstance(message, bytes):
        return frame(message)
    return frame((message if isinstance(message, str) else json.dumps(message)).encode())


class HostileRunner:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, runner: str) -> None:
        self._reader = reader
        self.writer = writer
        self._runner = runner
        self.closed: int | None = None
        """The gateway's code to close with."""
        self.operations: list[str] = []

    async def send(self, *messages: object) -> None:
        """Text frames, all in one write."""
        await self.raw(b"".join(map(text, messages)))

    async def raw(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()

    async def flood(self, piece: bytes, count: int = _FLOOD_FRAMES) -> None:
        """The same frame over and over, as fast as it is taken, until the gateway has had enough."""
        many = max(1, _BATCH // len(piece))
        with contextlib.suppress(OSError):
            for _ in range(count // many + 1):
                self.writer.write(piece * many)
                await self.writer.drain()
                if self.writer.is_closing() or self._reader.at_eof():
                    return

    async def hello(self, **changes: Any) -> None:
        await self.send({"type": "hello", "runner_id": self._runner, "model_proxy_version": 1, **changes})

    async def receive(self) -> dict[str, Any] | None:
        """What the gateway asks next; None when it has closed."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while self.closed is None:
                first, size = await self._reader.readexactly(2)
                if size == 126:
                    size = int.from_bytes(await self._reader.readexactly(2), "big")
                elif size == 127:
                    size = int.from_bytes(await self._reader.readexactly(8), "big")
                payload = await self._reader.readexactly(size)
                if first & 0x0F == CLOSE:
                    self.closed = int.from_bytes(payload[:2], "big")
                    return None
                if first & 0x0F == TEXT:
                    asked: dict[str, Any] = json.loads(payload)
                    self.operations.append(asked["operation"])
                    return asked
        self.closed = self.closed or _CLOSED_WITHOUT_CODE
        return None

    async def behave(self) -> None:
        """Answer as it should be, until the gateway closes."""
        while (asked := await self.receive()) is not None:
            if asked["operation"] == "start":
                await self.send(answer(asked["request_id"], data="{}", done=True))


def answer(request_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "model_response", "request_id": request_id, **fields}


Act = Callable[[HostileRunner, str], Awaitable[None]]


def answers(*frames: dict[str, Any]) -> Act:
    """These answers to one request, all at once, asked for or not."""

    async def act(runner: HostileRunner, request_id: str) -> None:
        await runner.send(*({**answer(request_id), **each} for each in frames))

    return act


def one_by_one(*frames: dict[str, Any]) -> Act:
    """Each of these answers when it was asked for."""

    async def act(runner: HostileRunner, request_id: str) -> None:
        for number, each in enumerate(frames):
            if number and (await runner.receive() or {}).get("operation") != "next":
                return
            await runner.send(answer(request_id, **each))

    return act


def spelled(fields: str) -> Act:
    """An answer whose JSON nobody made for it."""

    async def act(runner: HostileRunner, request_id: str) -> None:
        await runner.send(f'{{"type":"model_response","request_id":"{request_id}",{fields}}}')

    return act


def bytes_of(*frames: bytes) -> Act:
    async def act(runner: HostileRunner, _: str) -> None:
        await runner.raw(b"".join(frames))

    return act


def flooding(piece: bytes, first: bytes = b"", count: int = _FLOOD_FRAMES) -> Act:
    async def act(runner: HostileRunner, request_id: str) -> None:
        await runner.raw(first)
        await runner.flood(piece, count)
        await runner.send(answer(request_id, data="{}", done=True))

    return act


async def _sprays(runner: HostileRunner, request_id: str) -> None:
    for first in range(0, 4_000, 500):
        await runner.send(*(answer(f"{first + each:032x}", data=EVIL, done=True) for each in range(500)))
    await runner.send(answer(request_id, data="{}", done=True))


async def _is_late(runner: HostileRunner, request_id: str) -> None:
    await runner.send(answer(request_id, data="{}", done=True), *([answer(request_id, data=EVIL, done=True)] * 50))


async def _answers_after_cancel(runner: HostileRunner, request_id: str) -> None:
    while (asked := await runner.receive()) is not None and asked["operation"] != "cancel":
        pass
    await runner.send(*([answer(request_id, data=EVIL)] * 50), answer(request_id, error=EVIL))


async def _trickles(runner: HostileRunner, request_id: str) -> None:
    async def write() -> None:
        for each in text(answer(request_id, data="x" * 1000)):
            await runner.raw(bytes([each]))
            await asyncio.sleep(0.1)

    writing = asyncio.ensure_future(write())
    await runner.receive()
    writing.cancel()


async def _is_mute(_: HostileRunner, __: str) -> None:
    """Says nothing more."""


async def _reads_nothing(runner: HostileRunner, _: str) -> None:
    runner.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a reading transport
    while not runner.writer.is_closing():
        await runner.send({"type": "heartbeat"})
        await asyncio.sleep(0.2)


async def _pings_and_reads_nothing(runner: HostileRunner, _: str) -> None:
    runner.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a reading transport
    await runner.flood(frame(b"x" * 125, PING), 200_000)
    runner.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above


_LINE = {"data": "data: {}"}
_DONE = {"data": "data: [DONE]"}
_PART = frame(b'{"type":', fin=False)
_NEST = '"x":' + '{"a":' * 12_000 + "1" + "}" * 12_000

ACTS: dict[str, Act] = {
    "sprays ids": _sprays,
    "is late after done": _is_late,
    "is late after cancel": _answers_after_cancel,
    "two frames for one": answers(_LINE, _LINE),
    "a hundred frames for one": answers(*[_LINE] * 100),
    "hello again": answers({"type": "hello", "runner_id": "laptop", "model_proxy_version": 1}),
    "another type": answers({"type": "job", "command": EVIL}),
    "no type": answers({"type": None}),
    "the gateway's own type": answers({"type": "model_request", "operation": "start", "body": {}}),
    "status 199": answers({"status": 199, "data": EVIL}),
    "status 101": answers({"status": 101, "data": EVIL}),
    "status 600": answers({"status": 600, "data": EVIL}),
    "status 0": answers({"status": 0, "data": EVIL}),
    "status -200": answers({"status": -200, "data": EVIL}),
    "status true": answers({"status": True, "data": EVIL}),
    "status null": answers({"status": None, "data": EVIL}),
    "status in quotes": answers({"status": "200", "data": EVIL}),
    "status 1e3": spelled('"status":1e3'),
    "status 2e2": spelled('"status":2e2'),
    "status 200.0": spelled('"status":200.0'),
    "status of 5,000 digits": spelled('"status":' + "2" * 5000),
    "status 1e999999": spelled('"status":1e999999'),
    "status 302": answers({"status": 302, "data": EVIL, "done": True}),
    "status 418 and a page": answers({"status": 418, "data": f"<script>{EVIL}</script>", "done": True}),
    "error of 128 characters": answers({"error": EVIL.ljust(128, "x"), "status": 200}),
    "error of 129 characters": answers({"error": EVIL.ljust(129, "x"), "status": 200}),
    "error with a field": answers({"error": f"x\r\nset-cookie: {EVIL}", "status": 502}),
    "error of the gateway's own": answers({"error": "invalid_api_key", "status": 401, "data": EVIL}),
    "id with a field": answers({"request_id": f"x\r\nset-cookie: {EVIL}"}),
    "id of 129 characters": answers({"request_id": "x" * 129}),
    "id of a number": answers({"request_id": 1}),
    "data of a list": answers({"data": [EVIL]}),
    "done of a number": answers({"done": 1}),
    "data of 64 KiB and 1": answers({"data": EVIL.ljust(65_537, "x")}),
    "a frame of 72 KiB and 1": answers({"data": EVIL.ljust(72 * 1024, "x")}),
    "a frame of 392 KiB and 1": answers({"data": EVIL.ljust(392 * 1024, "x")}),
    "a frame of 16 MiB": bytes_of(frame(EVIL.encode() * 700_000)),
    "a frame of 8 EiB": bytes_of(bytes([_FIN | TEXT, _MASKED | 127]) + b"\x7f" + b"\xff" * 7 + _MASK, b"x" * 1000),
    "no JSON": bytes_of(text(EVIL)),
    "half of JSON": bytes_of(text('{"type":"model_response","request_id":"' + EVIL)),
    "nothing": bytes_of(text("")),
    "a nest of objects": spelled(_NEST),
    "a nest of lists": bytes_of(text("[" * 70_000)),
    "keys by the thousand": spelled(",".join(f'"{number}":0' for number in range(7_000)) + ',"data":"{}","done":true'),
    "a number of 60,000 digits": spelled('"x":' + "9" * 60_000 + ',"data":"{}","done":true'),
    "keys twice": spelled('"status":500,"status":200,"data":"x","data":"{}","done":false,"done":true'),
    "half a surrogate": spelled('"data":"\\ud800"'),
    "no UTF-8": bytes_of(text(b'{"type":"model_response","data":"\xff"}')),
    "no UTF-8 in bytes": bytes_of(frame(b"\xff\xfe", BINARY)),
    "a frame in bytes": bytes_of(frame(json.dumps({"type": "heartbeat"}).encode(), BINARY)),
    "a frame without a mask": bytes_of(frame(b'{"type":"heartbeat"}', mask=False)),
    "a reserved bit": bytes_of(frame(b'{"type":"heartbeat"}', reserved=4)),
    "a reserved kind": bytes_of(frame(b"x", 3)),
    "a ping of 126 bytes": bytes_of(frame(b"x" * 126, PING)),
    "a part of nothing": bytes_of(frame(b"x", CONTINUATION)),
    "a message within a message": bytes_of(_PART, text("{}")),
    "a flood of empty parts": flooding(frame(b"", CONTINUATION, fin=False), _PART),
    "a flood of parts": flooding(frame(b" ", CONTINUATION, fin=False), _PART),
    "a flood of pings": flooding(frame(b"x" * 125, PING), count=200_000),
    "a flood of pings whose echo is not read": _pings_and_reads_nothing,
    "a flood of heartbeats": flooding(text({"type": "heartbeat"}), count=2_000),
    "a flood of large frames": flooding(text(answer("nobody", data="x" * 65_000)), count=2_000),
    "a trickle": _trickles,
    "mute": _is_mute,
    "mute after three": one_by_one(_LINE, _LINE, _LINE),
    "reads nothing": _reads_nothing,
    "content with done": answers({**_LINE, "done": True}),
    "an end without [DONE]": one_by_one(_LINE, {"data": "", "done": True}),
    "[DONE] twice": answers({**_DONE, "done": True}, {**_DONE, "done": True}),
    "[DONE] twice, never done": answers(_DONE, _DONE),
    "a line after [DONE]": answers({**_DONE, "done": True}, {"data": f"data: {EVIL}"}),
    "LF in a line": answers({"data": f"data: {{}}\n\ndata: {EVIL}"}),
    "CR in a line": answers({"data": f"data: {{}}\rdata: {EVIL}"}),
    "CRLF at a line's end": answers({"data": f"data: {EVIL}\r\n"}),
    "LF in a later line": one_by_one(_LINE, {"data": f"data: {{}}\n\ndata: {EVIL}"}),
    "an error in the middle": one_by_one(_LINE, {"error": EVIL, "status": 418}),
    "a page for a completion": answers({"data": f"<html>{EVIL}", "done": True}),
    "a list for a completion": answers({"data": f'["{EVIL}"]', "done": True}),
}  # fmt: skip
"""What is done when the first request has come."""

_HELLO = {"type": "hello", "runner_id": "laptop", "model_proxy_version": 1}
GREETINGS: dict[str, tuple[bytes, ...]] = {
    "an answer before hello": (text(answer("0" * 32, data=EVIL)), text(_HELLO)),
    "a heartbeat before hello": (text({"type": "heartbeat"}), text(_HELLO)),
    "another runner's id": (text({**_HELLO, "runner_id": "desk"}),),
    "no id": (text({**_HELLO, "runner_id": ""}),),
    "version 2": (text({**_HELLO, "model_proxy_version": 2}),),
    "version 0": (text({**_HELLO, "model_proxy_version": 0}),),
    "version in quotes": (text({**_HELLO, "model_proxy_version": "1"}),),
    "version true": (text({**_HELLO, "model_proxy_version": True}),),
    "version 1.0": (text(json.dumps(_HELLO).replace("1}", "1.0}")),),
    "no version": (text({"type": "hello", "runner_id": "laptop"}),),
    "hello in bytes": (frame(json.dumps(_HELLO).encode(), BINARY),),
    "a hello of 72 KiB and 1": (text(json.dumps(_HELLO).ljust(72 * 1024 + 1)),),
    "half a hello": (text(_HELLO)[:20],),
}
"""What is sent instead of a hello."""


async def dial(port: int, runner: str, token: str) -> HostileRunner:
    """A websocket, as far as the upgrade goes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /api/v1/runners/{runner}/ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\nx-runner-token: {token}\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return HostileRunner(reader, writer, runner)


async def _play(runner: HostileRunner, name: str) -> None:
    if name in GREETINGS:
        await runner.raw(b"".join(GREETINGS[name]))
    else:
        await runner.hello()
        asked = await runner.receive()
        if asked is None:
            return
        await ACTS[name](runner, asked["request_id"])
    await runner.behave()


async def main() -> None:
    """See above."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        wanted = json.loads(line)
        runner = await dial(wanted["port"], wanted["runner"], wanted["token"])
        playing = asyncio.ensure_future(_play(runner, wanted["act"]))
        await asyncio.wait((playing,), timeout=float(await lines.readline()))
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
        runner.writer.close()
        print(json.dumps({"closed": runner.closed, "operations": runner.operations}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
