"""TLS over any transport, by memory BIOs.

Takes bytes that were read before TLS began (a ClientHello glued to CONNECT), which `start_tls` loses, and costs a
seventh of its memory. One write of the inner protocol is one write of the outer transport.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

_RECORD = 16 * 1024


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """Protocol towards the raw transport, transport towards the inner protocol.

    The inner protocol's `connection_made` comes when the handshake is done. A handshake that fails closes the raw
    transport. `on_settled` hears of either, once: an empty string, or the reason of the failure. With `take_turns`, a
    step of the handshake is done when that calls it.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.Protocol,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        on_settled: Callable[[str], None] | None = None,
        take_turns: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        asyncio.Transport.__init__(self)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self._inner = inner
        self._on_settled = on_settled
        self._take_turns = take_turns
        self._has_turn_to_come = False
        self._raw: asyncio.Transport | None = None
        self._ready = False
        self._closing = False
        self._lost = False
        self._cut = False

    # Towards the raw transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._handshake()

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._ready:
            self._read()
        elif self._take_turns is None:
            self._step()
        elif not self._has_turn_to_come:
            self._has_turn_to_come = True
            self._take_turns(self._turn)

    def _turn(self) -> None:
        """The step that was put off, unless its time has passed."""
        if self._has_turn_to_come:
            self._has_turn_to_come = False
            self._step()

    def _step(self) -> None:
        if not self._closing and self._handshake():
            self._read()

    def eof_received(self) -> bool | None:
        self._turn()  # what came before the end is judged before it
        if not self._ready:
            self._fail("connection closed during the TLS handshake")
            return False
        self._cut = True  # no goodbye came first, so whoever relies on the end as a frame must not
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._has_turn_to_come = False
        self._lost = self._closing = True
        if self._ready:
            if exc is None and self._cut:
                exc = ConnectionResetError("TLS connection ended without close_notify")
            self._inner.connection_lost(exc)
        else:
            self._settle("connection lost during the TLS handshake")
        # It may hold what could not be written, and we are in a cycle with the inner protocol.
        self._raw = None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._fail(f"TLS handshake failed: {error.reason or error}")
            return False
        self._ready = True
        self._flush()
        self._inner.connection_made(self)
        self._settle("")
        return not self._closing

    def _fail(self, reason: str) -> None:
        self._closing = True
        if self._raw is not None:
            self._raw.close()
        self._settle(reason)

    def _settle(self, reason: str) -> None:
        on_settled, self._on_settled = self._on_settled, None
        if on_settled is not None:
            on_settled(reason)

    def _read(self) -> None:
        pieces: list[bytes] = []
        ended = False
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(_RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError:
            self._flush()
            self.abort()
            return
        if self._outgoing.pending:
            self._flush()  # alerts and key updates
        if pieces:
            self._inner.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if ended and not self._lost and not self._inner.eof_received():
            self.close()

    def _flush(self) -> None:
        if self._raw is not None and self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    # Towards the inner protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._raw is None:
            return
        self._tls.write(data)
        self._raw.write(self._outgoing.read())

    def write_eof(self) -> None:
        """Say that nothing more comes, and keep reading."""
        self._close_notify()
        if self._raw is not None and not self._raw.is_closing():
            self._raw.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """Flush, say goodbye in TLS and close; does not wait for the peer's goodbye."""
        self._close_notify()
        if self._raw is not None:
            self._raw.close()

    def cut(self) -> None:
        """Flush and close without the TLS goodbye: the peer sees that the stream was cut."""
        self._closing = True
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        self._closing = True
        if self._raw is not None:
            self._raw.abort()

    def _close_notify(self) -> None:
        if self._closing or not self._ready:
            return
        self._closing = True
        with suppress(ssl.SSLError):  # it wants the peer's goodbye, which we don't wait for
            self._tls.unwrap()
        self._flush()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size() if self._raw is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default) if self._raw is not None else default
