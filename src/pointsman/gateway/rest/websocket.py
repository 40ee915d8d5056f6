"""A websocket of the control listener: uvicorn's, for a peer that is not trusted.

Owns what a peer may cost besides its messages: turns of the loop, memory for what it does not read, and time to go.
What messages mean is their application's.
"""

import asyncio

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

_VIOLATION = 1008
_LAST_SECONDS = 5.0
"""For what was written last, a websocket's close among it, to be taken."""
_WHY_SECONDS = 1.0
"""For a peer whose websocket broke to read why: closed at once, with bytes of it unread, it would see a reset."""
_TURN_BYTES = 8 * 1024
"""Looked at before others have their turn: as frames without content these are 1,300, some 10 ms."""
_FRAMES_BETWEEN = 128
"""Pings, pongs and parts of a message, until a message is complete: such frames are cheap to send, and endless."""


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Given to uvicorn as its protocol."""

    _between = 0
    """Frames since the last message."""
    _is_stuck = False
    """Whether the peer does not read."""
    _is_planned = False
    _is_over = False
    """Whether what comes is of no interest any more."""
    _last: asyncio.TimerHandle | None = None
    _behind = 0
    """Messages since a close was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._unseen = bytearray()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._unseen and len(data) <= _TURN_BYTES:
            super().data_received(data)
        else:
            self._unseen += data
            self._look()
        self._steer()

    def _look(self) -> None:
        piece = bytes(self._unseen[:_TURN_BYTES])
        del self._unseen[:_TURN_BYTES]
        super().data_received(piece)

    def _look_again(self) -> None:
        self._is_planned = False
        if self._unseen and not self._is_busy and not self.transport.is_closing():
            self._look()
        self._steer()

    @property
    def _is_busy(self) -> bool:
        """Whether what came is not taken over yet, or what is sent is not read."""
        return self.read_paused or self._is_stuck

    def _steer(self) -> None:
        """Read when there is nothing left to look at, and look when there is nothing left to be taken over."""
        if self.transport.is_closing():
            self._unseen.clear()
        elif self._is_over:
            self.transport.resume_reading()
        elif self._is_busy or self._unseen:
            self.transport.pause_reading()
            if self._unseen and not self._is_busy and not self._is_planned:
                self._is_planned = True
                self.loop.call_soon(self._look_again)
        else:
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._steer()
        return message

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_stuck = True
        self._steer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_stuck = False
        self._steer()

    def handle_ping(self) -> None:
        super().handle_ping()
        self._count()

    def handle_pong(self, event: Frame) -> None:
        super().handle_pong(event)
        self._count()

    def handle_text(self, event: Frame) -> None:
        super().handle_text(event)
        self._count(begins=event.fin)

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(event)
        self._count(begins=event.fin)

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        self._count(begins=event.fin)

    def _count(self, *, begins: bool = False) -> None:
        """`begins`: what comes now belongs to another message."""
        self._between = 0 if begins else self._between + 1
        if self._between > _FRAMES_BETWEEN and not self.close_sent:
            self.conn.fail(_VIOLATION)
            self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        if self.close_sent:  # nobody takes it, so nothing makes it wait: a flood would hold up the loop
            self._behind += 1
            if self._behind > _FRAMES_BETWEEN:
                self.transport.abort()
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Close because of what came. Unlike uvicorn, let the peer read why: what it has sent by then is taken."""
        reason = self.conn.close_sent
        assert reason is not None
        self.queue.put_nowait({"type": "websocket.disconnect", "code": reason.code, "reason": reason.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._is_over = True
        self._unseen.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.close_timer = self.loop.call_later(_WHY_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._is_over = True
        if self._last is not None:  # it would keep what has gone for its time
            self._last.cancel()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        """The application has ended. One that takes no byte would keep its connection for ever."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._last = self.loop.call_later(_LAST_SECONDS, self.transport.abort)
