"""The clients of the chain soak: each asks, stays or leaves, and judges every byte of what it gets."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench.chain_upstreams import FALLBACK, Asked, Upstreams, event, whole
from bench.fault_cells import Answer, WrongAnswer
from bench.fault_clients import read_answer

STRATEGIES = ("in_order", "weighted", "least_used")
_SECONDS = 60.0
"""Until an answer must have ended, on a busy machine; the slowest takes some seconds."""
_MOST_ATTEMPTS = 2 * 4
_LEAVING = ("", "", "", "", "", "", "", "", "before", "after")
_ERROR_EVENT = b'data: {"error":'


@dataclass(frozen=True, slots=True)
class End:
    """What a client made of its answer."""

    nonce: str
    request_id: str
    """Empty where no head was seen."""
    kind: str
    """`whole`, `cut`, `refused` (503) or `left`."""
    by: str = ""
    """Whose answer it was, as every part of it says."""


class Caller:
    """One request after the other, over a connection that is kept where it can be."""

    def __init__(self, upstreams: Upstreams, port: int, rng: random.Random) -> None:
        self._upstreams, self._port, self._rng = upstreams, port, rng
        self._kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def one(self, nonce: str) -> End:
        """Raises WrongAnswer."""
        leaves = self._rng.choice(_LEAVING)
        stream = leaves == "after" or self._rng.random() < 0.6
        asked = Asked(nonce, stream, self._rng.randrange(1, 30), leaves)
        self._upstreams.reached[nonce] = asyncio.Event()
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._ask(asked)
        except TimeoutError:
            raise WrongAnswer(f"{asked}: no end within {_SECONDS:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WrongAnswer(f"{asked}: {error!r} instead of an answer") from None
        finally:
            del self._upstreams.reached[nonce]

    async def _ask(self, asked: Asked) -> End:
        reader, writer = self._kept or await asyncio.open_connection("127.0.0.1", self._port)
        self._kept = None
        chain = self._rng.choice(STRATEGIES)
        body = json.dumps({"model": chain, **asdict(asked)}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        if asked.leaves:
            request_id = await self._leave(asked, reader)
            writer.transport.abort()
            return End(asked.nonce, request_id, "left")
        answer = await read_answer(reader)
        if answer.complete and answer.fields.get("connection") != "close":
            self._kept = reader, writer
        else:
            writer.transport.abort()
        return judged(asked, chain, answer)

    async def _leave(self, asked: Asked, reader: asyncio.StreamReader) -> str:
        if asked.leaves == "before":
            await self._upstreams.reached[asked.nonce].wait()
            return ""
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.readuntil(b"\n\n")
        if b'"nonce": "%b"' % asked.nonce.encode() not in first:
            raise WrongAnswer(f"{asked}: {first!r}")
        return head.lower().partition(b"x-pointsman-request-id: ")[2].partition(b"\r\n")[0].decode()

    def close(self) -> None:
        """Drop what is kept."""
        if self._kept is not None:
            self._kept[1].transport.abort()


def judged(asked: Asked, chain: str, answer: Answer) -> End:
    """Raises WrongAnswer for whatever is not the request's own, whole or told as cut."""
    fields = answer.fields
    request_id = fields.get("x-pointsman-request-id", "")

    def require(condition: bool) -> None:
        if not condition:
            raise WrongAnswer(f"{asked}: {answer.status} {fields} complete={answer.complete} {answer.body[:300]!r}")

    require(bool(request_id))
    require(int(fields.get("x-pointsman-attempts", "0")) <= _MOST_ATTEMPTS)
    if answer.status == 503:
        require(answer.complete and json.loads(answer.body)["error"]["code"] == "no_provider_available")
        return End(asked.nonce, request_id, "refused")
    require(answer.status == 200 and fields["x-pointsman-route"] == chain)
    by = fields["x-pointsman-model"].removeprefix("model-")
    if not asked.stream:
        expected = whole(asked.nonce, by, asked.events)
        require(answer.body == expected if answer.complete else expected.startswith(answer.body))
        return End(asked.nonce, request_id, "whole" if answer.complete else "cut", by)
    expected = b"".join(event(asked.nonce, by, number) for number in range(asked.events))
    if answer.body == expected + b"data: [DONE]\n\n":
        require(answer.complete)
        return End(asked.nonce, request_id, "whole", by)
    events, found, error = answer.body.rpartition(_ERROR_EVENT)
    require(answer.complete and bool(found) and error.endswith(b"}\n\n") and b"truncated" in error)
    require(expected.startswith(events) and (events.endswith(b"\n\n") or (by == FALLBACK and not events)))
    return End(asked.nonce, request_id, "cut", by)


class Crowd:
    """So many callers at once, in rounds."""

    def __init__(self, upstreams: Upstreams, port: int, seed: int, size: int) -> None:
        self._callers = [Caller(upstreams, port, random.Random(f"{seed} {number}")) for number in range(size)]
        self.ends: list[End] = []
        self.wrong: list[str] = []

    @property
    def kinds(self) -> Counter[str]:
        """How many ended how."""
        return Counter(end.kind for end in self.ends)

    async def round(self, name: str, requests: int) -> None:
        """So many requests of each caller."""

        async def work(number: int, caller: Caller) -> None:
            for at in range(requests):
                try:
                    self.ends.append(await caller.one(f"{name}.{number}.{at}"))
                except WrongAnswer as error:
                    self.wrong.append(str(error))

        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate(self._callers):
                group.create_task(work(number, caller))

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Connections are dropped at the end."""
        try:
            yield
        finally:
            for caller in self._callers:
                caller.close()
