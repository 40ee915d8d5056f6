"""An upstream's error, read whole before it is known whether it is the client's answer."""

import asyncio

from pointsman.proxy.call import Response
from pointsman.proxy.relay import Collector
from pointsman.proxy.upstream.exchange import IDLE, BodySink
from pointsman.wire.response import ResponseHead


class WholeAnswer:
    """An answer that has been read, to be told apart by its body, and may still be the client's."""

    def __init__(self, head: ResponseHead, body: bytes, truncated: str) -> None:
        self.head = head
        self.body = body
        self._truncated = truncated

    async def relay(self, sink: BodySink) -> str:
        """All that came."""
        sink.body(self.body, last=not self._truncated)
        return self._truncated

    def pause(self) -> None:
        """Nothing is on the way."""

    def resume(self) -> None:
        """Nothing is on the way."""

    def abandon(self) -> None:
        """Nothing is on the way."""

    def close(self) -> None:
        """It is whoever read it that lets go."""


async def read_whole(response: Response, seconds: float) -> WholeAnswer:
    """All of it, or what comes within so many seconds."""
    collector = Collector()
    try:
        async with asyncio.timeout(seconds):
            truncated = await response.relay(collector)
    except TimeoutError:
        truncated = IDLE
    return WholeAnswer(response.head, collector.value(), truncated)
