"""Random exchanges that both ends can compute from a nonce: what is asked, and what the upstream answers.

The nonce fixes everything: form, status, body, how it is sliced and where it is cut. The client can so tell whether
what it received is what the upstream sent to this very request, and not to another.
"""

import asyncio
import gzip
import json
import random
import socket
import struct
from dataclasses import dataclass

FORMS = ("length", "chunks", "events", "gzip", "to-the-end")
CUTS = ("none", "none", "none", "none", "none", "none", "fin", "reset", "before-head")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answer, as the upstream gives it."""

    nonce: str
    form: str
    status: int
    body: bytes
    cut: str
    cut_at: int
    slice_seed: int


def exchange(nonce: str) -> Exchange:
    """The exchange that a nonce stands for."""
    rng = random.Random(nonce)
    form = rng.choice(FORMS)
    size = rng.choice((0, 10, 200, 3_000, 80_000))
    if form in ("events", "gzip"):
        count = rng.randrange(1, 2 + size // 50)
        events = (f'data: {{"nonce":"{nonce}","n":{n},"pad":"{"x" * rng.randrange(60)}"}}\n\n' for n in range(count))
        body = "".join(events).encode()
    else:
        body = json.dumps({"nonce": nonce, "pad": "".join(rng.choices('ab é"\\{}', k=size))}).encode()
    if form == "gzip":
        body = gzip.compress(body, mtime=0)
    status = rng.choice((200, 200, 200, 200, 400, 404, 429, 500, 503))
    cut = rng.choice(CUTS)
    if form == "to-the-end" and cut == "fin":
        cut = "reset"  # an orderly end is the end of such a body
    if form == "length" and not body and cut != "before-head":
        cut = "none"  # it is whole as soon as its head is
    return Exchange(nonce, form, status, body, cut, rng.randrange(max(len(body), 1)), rng.randrange(2**32))


def head(answer: Exchange) -> bytes:
    """The head that the upstream sends."""
    lines = [f"HTTP/1.1 {answer.status} Answer", f"x-nonce: {answer.nonce}"]
    if answer.form in ("events", "gzip"):
        lines.append("content-type: text/event-stream")
    else:
        lines.append("content-type: application/json")
    if answer.form == "gzip":
        lines.append("content-encoding: gzip")
    if answer.form == "length":
        lines.append(f"content-length: {len(answer.body)}")
    elif answer.form == "to-the-end":
        lines.append("connection: close")
    else:
        lines.append("transfer-encoding: chunked")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def pieces(answer: Exchange, data: bytes) -> list[bytes]:
    """The body in random slices, framed for its form."""
    rng = random.Random(answer.slice_seed)
    found, at = [], 0
    while at < len(data):
        step = rng.choice((1, 7, 100, 5_000, 100_000))
        part = data[at : at + step]
        found.append(b"%x\r\n%b\r\n" % (len(part), part) if answer.form in ("chunks", "events", "gzip") else part)
        at += step
    return found


class UpstreamServer:
    """Answers each request as its nonce says. `answered` counts by nonce."""

    def __init__(self) -> None:
        self.answered: dict[str, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while await self._one(reader, writer):
                pass
        except (
            ConnectionError,
            RuntimeError,
            asyncio.IncompleteReadError,
        ):  # RuntimeError: uvloop, written after a close
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await reader.readuntil(b"\r\n\r\n")
        size = int(request.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        if body["model"] != "soak-model":
            raise AssertionError(f"the model was not pinned: {body['model']!r}")
        answer = exchange(body["nonce"])
        self.answered[answer.nonce] = self.answered.get(answer.nonce, 0) + 1
        if answer.cut == "before-head":
            return False
        cut = answer.cut != "none"
        data = answer.body[: answer.cut_at] if cut else answer.body
        whole = [head(answer), *pieces(answer, data)]
        if not cut and answer.form in ("chunks", "events", "gzip"):
            whole.append(b"0\r\n\r\n")
        rng = random.Random(answer.slice_seed + 1)
        for piece in whole:
            writer.write(piece)
            if rng.random() < 0.1:
                await asyncio.sleep(0)
        await writer.drain()
        if answer.cut == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return not cut and answer.form != "to-the-end"
