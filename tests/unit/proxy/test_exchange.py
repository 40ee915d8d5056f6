"""An exchange between a fake line and a fake sink: what sockets cannot be made to do on command."""

import asyncio

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.exchange import Exchange, Patience


class Line:
    """Records what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def release(self, *, reusable: bool) -> None:
        self.calls.append("keep" if reusable else "close")


class FullSink:
    """A client whose buffer is full with the first bytes."""

    def __init__(self) -> None:
        self.received = b""
        self.exchange: Exchange | None = None

    def start(self) -> None:
        pass

    def body(self, data: bytes, *, last: bool) -> None:
        self.received += data
        if self.exchange is not None:
            self.exchange.pause()


def test_a_line_that_was_paused_by_the_last_bytes_is_awake_when_it_is_kept() -> None:
    line, sink = Line(), FullSink()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sweep = Sweep(loop, 1.0, loop.time)
        exchange = sink.exchange = Exchange(line, DEFAULT_LIMITS, sweep, Patience(1.0), reused=False)
        exchange.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert await exchange.relay(sink) == ""
        exchange.resume()
        exchange.close()
        sweep.close()

    asyncio.run(main())
    assert sink.received == b"{}"
    assert line.calls == ["pause", "resume", "keep"]


@pytest.mark.guarantee("R10")
@pytest.mark.parametrize(("early", "calls"), [(64 * 1024, ["keep"]), (64 * 1024 + 1, ["pause", "resume", "keep"])])
def test_64_kib_may_come_before_anybody_reads_them(early: int, calls: list[str]) -> None:
    line, sink = Line(), FullSink()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sweep = Sweep(loop, 1.0, loop.time)
        exchange = Exchange(line, DEFAULT_LIMITS, sweep, Patience(1.0), reused=False)
        exchange.receive(head + b"x" * (early - len(head)))
        relay = loop.create_task(exchange.relay(sink))
        await asyncio.sleep(0)
        exchange.receive(b"x" * (100_000 + len(head) - early))
        assert await relay == ""
        exchange.close()
        sweep.close()

    asyncio.run(main())
    assert sink.received == b"x" * 100_000
    assert line.calls == calls
