"""One kept connection to an upstream."""

import asyncio
from typing import Protocol, cast

from pointsman.proxy.upstream.exchange import Exchange


class Shelf(Protocol):
    """Where a connection goes between requests."""

    def add(self, connection: "UpstreamConnection") -> None:
        """It has been made."""

    def put(self, connection: "UpstreamConnection") -> None:
        """Keep it for the next request."""

    def remove(self, connection: "UpstreamConnection") -> None:
        """It is gone."""


class UpstreamConnection(asyncio.Protocol):
    """Carries one exchange at a time; between them any byte from the upstream closes it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.idle_since = 0.0
        self.used = False
        """Whether it has carried a request before."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._shelf.add(self)

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.receive(data)
        else:
            self.close()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._shelf.remove(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lost(clean=exc is None)

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, exchange: Exchange, request: list[bytes | memoryview]) -> None:
        """Begin an exchange by sending its whole request."""
        self._exchange = exchange
        if self._transport is None:
            exchange.lost(clean=False)
            return
        if len(request) == 1:
            self._transport.write(request[0])
        else:
            self._transport.writelines(request)

    def pause_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def release(self, *, reusable: bool) -> None:
        """The exchange is over."""
        self._exchange = None
        transport = self._transport
        # An upstream that answers before it has read everything must not get the next request behind the rest.
        if reusable and transport is not None and not transport.is_closing() and not transport.get_write_buffer_size():
            self.used = True
            self._shelf.put(self)
        else:
            self.close()

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
