"""Keys rotated under load: no request may fail, and the new route must be in use within one poll and 100 ms.

    .venv/bin/python bench/rotation.py --rotations 100 --requests 10000

A real `pointsman sandbox proxy --gateway` stands between clients that never stop, half of them with streams, and an
upstream that notes which key came when. `--gateway MODULE:FUNCTION` names what starts the gateway: a context manager
that is given a directory and gives a ChangingGateway; `bench.rotation:scripted`
is the tests' scripted one, and a real gateway is the default.
"""

import argparse
import asyncio
import contextlib
import importlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tests.support.processes import ProxyProcess, following_process
from tests.support.scripted_gateway import ScriptedGateway, resolved

CLIENTS = 8
"""With small requests, and as many with streams."""
_LONGEST_PAUSE = 0.04
"""Between two small requests of a client; more would be taken for a delay of the route."""
_ALLOWANCE_SECONDS = 0.1
"""Beyond one interval, from the change to the first request on the new route."""
_BODY = b'{"model":"any","messages":[{"role":"user","content":"hello"}]}'
_EVENTS, _EVENT_SECONDS = 4, 0.1


class ChangingGateway(Protocol):
    """A gateway that can be told where inference goes."""

    @property
    def url(self) -> str:
        """Of its gRPC listener."""

    @property
    def token(self) -> str:
        """A sandbox's."""

    def change(self, base_url: str, key: str, model: str) -> None:
        """Make all of these the route's; returns when sandboxes that ask get it. Called in a thread."""


GatewayStart = Callable[[Path], AbstractContextManager[ChangingGateway]]


class _Scripted(ScriptedGateway):
    def change(self, base_url: str, key: str, model: str) -> None:
        self.serve(resolved(base_url, api_key=key, model_id=model))


@contextlib.contextmanager
def scripted(directory: Path) -> Iterator[ChangingGateway]:
    """The tests' gateway."""
    gateway = _Scripted()
    with gateway:
        yield gateway


class Upstream:
    """Answers at once, or in a stream; knows when each key was seen first."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.arrived = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        keys: set[str] = set()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = int(_value(head, "content-length"))
                await reader.readexactly(size)
                key = _value(head, "authorization").removeprefix("bearer ")
                keys.add(key)
                if len(keys) > 1:
                    raise SystemExit(f"one connection carried two keys: {keys}")
                if key not in self.seen:
                    self.seen[key] = time.monotonic()
                    async with self.arrived:
                        self.arrived.notify_all()
                await self._answer(writer, streaming="?stream" in head.split(" ", 2)[1])
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, *, streaming: bool) -> None:
        if not streaming:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(_EVENTS):
            event = b"data: %d\n\n" % number if number < _EVENTS - 1 else b"data: [DONE]\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(_EVENT_SECONDS)
        writer.write(b"0\r\n\r\n")


def _value(head: str, name: str) -> str:
    return head.partition(f"\r\n{name}: ")[2].partition("\r\n")[0]


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    requests: int = 0
    failures: list[str] = field(default_factory=list)


class Client:
    """One connection through the door, one request after the other."""

    def __init__(self, proxy: ProxyProcess, tally: Tally, *, streaming: bool) -> None:
        self._proxy = proxy
        self._tally = tally
        self._streaming = streaming

    async def run(self, pause: float, stop: asyncio.Event) -> None:
        """Ask until told to stop; what fails is counted, and the connection made anew."""
        while not stop.is_set():
            try:
                reader, writer = await self._enter()
                while not stop.is_set():
                    self._tally.requests += 1
                    await self._ask(reader, writer)
                    await asyncio.sleep(pause)
                writer.close()
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                self._tally.failures.append(f"{type(error).__name__}: {error}")

    async def _enter(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        writer.write(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(self._proxy.client_context(), server_hostname="inference.local")
        return reader, writer

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = "/v1/chat/completions" + ("?stream" if self._streaming else "")
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: inference.local\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), len(_BODY), _BODY)
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        body = await _read_body(reader, head)
        if not head.startswith("http/1.1 200 ") or (self._streaming and not body.endswith(b"data: [DONE]\n\n")):
            raise ValueError(f"{head.splitlines()[0]} {body[-200:]!r}")


async def _read_body(reader: asyncio.StreamReader, head: str) -> bytes:
    if "transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(_value(head, "content-length")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


async def measure(start: GatewayStart, rotations: int, requests: int, interval: float) -> int:
    """Run it and print what came of it; the exit status."""
    upstream, tally, stop = Upstream(), Tally(), asyncio.Event()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    environ = {**os.environ, "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": f"{interval:g}"}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = stack.enter_context(start(directory))
        await asyncio.to_thread(gateway.change, url, "key-0", "model-0")
        proxy = stack.enter_context(following_process(gateway.url, gateway.token, directory, environ=environ))
        pause = min(CLIENTS * rotations * interval / requests, _LONGEST_PAUSE)
        async with asyncio.TaskGroup() as group:
            for number in range(2 * CLIENTS):
                group.create_task(Client(proxy, tally, streaming=number % 2 == 0).run(pause, stop))
            delays = [await _rotate(gateway, upstream, url, number, interval) for number in range(1, rotations + 1)]
            while tally.requests < requests:  # noqa: ASYNC110  # a few intervals, at the end of minutes
                await asyncio.sleep(interval)
            stop.set()
        server.close()
    return _report(tally, delays, interval)


async def _rotate(gateway: ChangingGateway, upstream: Upstream, url: str, number: int, interval: float) -> float:
    """Change key and model; seconds until the upstream saw the key."""
    key = f"key-{number}"
    # Between two polls, at a place that differs from one rotation to the next.
    await asyncio.sleep(interval * math.modf(number * 0.618)[0])
    await asyncio.to_thread(gateway.change, url, key, f"model-{number}")
    changed = time.monotonic()
    async with upstream.arrived, asyncio.timeout(10 * interval + 30):
        await upstream.arrived.wait_for(lambda: key in upstream.seen)
    return max(0.0, upstream.seen[key] - changed)


def _report(tally: Tally, delays: list[float], interval: float) -> int:
    most = interval + _ALLOWANCE_SECONDS
    late = sum(delay >= most for delay in delays)
    print(f"rotations {len(delays)}, requests {tally.requests}, failed {len(tally.failures)}")
    print(
        f"from the change to the first request on the new route: median {statistics.median(delays) * 1000:.0f} ms, "
        f"most {max(delays) * 1000:.0f} ms; allowed {most * 1000:.0f} ms, beyond it {late}"
    )
    for failure in tally.failures[:10]:
        print(f"  {failure}")
    return 1 if tally.failures or late else 0


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rotations", type=int, default=100)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two polls")
    parser.add_argument("--gateway", default="bench.real_gateway:running", metavar="MODULE:FUNCTION")
    options = parser.parse_args()
    module, _, function = options.gateway.partition(":")
    start: GatewayStart = getattr(importlib.import_module(module), function)
    return asyncio.run(measure(start, options.rotations, options.requests, options.interval))


if __name__ == "__main__":
    sys.exit(main())
