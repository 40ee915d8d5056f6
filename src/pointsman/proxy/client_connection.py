"""One client's HTTP/1.1 connection: requests in, responses out, one at a time.

It owns the client's deadlines and buffers. It never stops reading: a client that goes away must be noticed at any
time, and after `pause_reading` neither FIN nor RST is.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from math import inf
from typing import Protocol, cast

from pointsman.core.errors import RequestTimeout, RouterError
from pointsman.core.limits import Limits
from pointsman.events.record import Record, peer_of
from pointsman.proxy.held_bodies import HeldBodies
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.exchange import Flow
from pointsman.wire.request import Request, RequestHead, RequestReader

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINGER_SECONDS = 2.0
_SMALL_BODY = 16 * 1024
"""Not worth counting: as many of them as there may be connections are 16 MiB."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def without_body(answer: bytes) -> bytes:
    """An answer to HEAD: the same, up to the empty line."""
    return answer[: answer.index(b"\r\n\r\n") + 4]


class Application(Protocol):
    """What answers requests. Both methods get checked HTTP; `admit` sees the head before the body is read."""

    def admit(self, head: RequestHead) -> object:
        """Decide from the head alone. Raises RouterError to refuse; what it returns is handed to `serve`."""

    async def serve(self, admitted: object, request: Request, client: "ClientConnection") -> None:
        """Answer. Never raises but CancelledError, which means that the client has gone."""

    def refused(self, error: RouterError, head: RequestHead | None) -> bytes:
        """A request was refused without being served: note it, and give the answer, whose connection ends."""

    def refused_connection(self, error: RouterError, peer: object) -> bytes:
        """As `refused`, for a client that did not get as far as the door; `peer` is its address."""

    def handshake_failed(self, reason: str, peer: object) -> None:
        """A client's TLS did not come about: note it."""


class ClientConnection(asyncio.Protocol):
    """The client's side of the data plane; works on a plain or a TLS transport alike."""

    def __init__(
        self,
        application: Application,
        limits: Limits,
        sweep: Sweep,
        *,
        bodies: HeldBodies,
        on_lost: Callable[["ClientConnection"], None],
    ) -> None:
        self._application = application
        self._on_lost = on_lost
        self._bodies = bodies
        self._held = self._held_answer = 0
        self._limits = limits
        self._sweep = sweep
        self._reader = RequestReader(limits)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._next: tuple[object, Request] | None = None
        self._serving = False
        self._idle = False
        self._admitted: object = None
        self._deadline = inf
        self._lingering = False
        self._closed = False
        self._flow: Flow | None = None
        self._stalled_since = inf
        self._withheld = False
        self._peer: str | None = None
        """The other end's address, once asked for; empty where there is none."""
        self.running: Record | None = None
        """The request that `serve` is at."""
        self.keep_alive = True
        """Whether the connection carries another request after this one."""
        self.draining = False
        """Set when the server shuts down: this request is the last."""
        self.left_because = "client_gone"
        """Why a request was cancelled, in one word of `events.reasons.REASONS`."""

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = self._sweep.now() + self._limits.head_seconds
        self._sweep.add(self)

    def data_received(self, data: bytes) -> None:
        if self._lingering or self._closed:
            return
        reader = self._reader
        reader.receive(data)
        if not self._serving:
            self._advance()
        elif reader.buffered > self._limits.pipelined_bytes:
            self.abort("pipelined_too_much")

    def eof_received(self) -> bool | None:
        # A client that half-closes has no use for the answer: no inference client does so, and a request that
        # costs money must not go on for nobody.
        self._gone()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        self._closed = True
        # The transport refers to us, and a TLS transport holds buffers of up to one read's size: together they would
        # wait for a full collection.
        self._transport = None
        self._sweep.discard(self)
        if self._held:
            self._hold(0)
        if self._held_answer:
            self.hold_answer(0)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._stalled_since = self._sweep.now()
        if self._flow is not None:
            self._flow.pause()

    def resume_writing(self) -> None:
        self._stalled_since = inf
        if self._flow is not None:
            self._flow.resume()
        elif self._withheld:
            self._withheld = self._serving = False
            self._finished()

    def _gone(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Requests

    def _advance(self) -> None:
        head: RequestHead | None = None
        try:
            event = self._reader.next_event()
            if event is None:
                self._wait_for_more()
                return
            if type(event) is Request:
                head = event.head
                admitted = self._admitted
                if admitted is None:
                    admitted = self._admit(head)
                self._admitted = None
                self._start(admitted, event)
                return
            head = cast(RequestHead, event)
            self._admitted = self._admit(head)
            self._deadline = self._sweep.now() + self._limits.body_progress_seconds
            self._hold(self._reader.held)
            if self._reader.buffered:
                self._advance()
            elif head.expects_continue:
                self.write(_CONTINUE)
        except RouterError as error:
            self._refuse(error, head)

    def _admit(self, head: RequestHead) -> object:
        if self._peer is None:
            address = None if self._transport is None else peer_of(self._transport.get_extra_info("peername"))
            self._peer = "" if address is None else address[0]
        head.peer = self._peer
        return self._application.admit(head)

    def _wait_for_more(self) -> None:
        if self._reader.in_body:
            self._deadline = self._sweep.now() + self._limits.body_progress_seconds
            self._hold(self._reader.held)
        elif self._deadline == inf or self._idle:
            self._idle = False
            seconds = self._limits.head_seconds if self._reader.in_request else self._limits.keep_alive_seconds
            self._deadline = self._sweep.now() + seconds

    def _start(self, admitted: object, request: Request) -> None:
        if len(request.body) > _SMALL_BODY:
            self._hold(len(request.body))
        self._deadline = inf
        self._idle = False
        self._serving = True
        self.keep_alive = request.head.keep_alive and not self.draining
        self._next = (admitted, request)
        if self._task is None:
            # Owned by this connection, which cancels it and outlives it. One for all of its requests: a task costs
            # 4 µs.
            self._task = self._sweep.loop.create_task(self._run())
        elif self._waiter is not None:
            self._waiter.set_result(None)

    async def _run(self) -> None:
        try:
            while self._next is not None:
                (admitted, request), self._next = self._next, None
                await self._application.serve(admitted, request, self)
                self._flow = None
                self._serving = False
                del admitted, request  # neither a body nor a bundle, with its keys, is kept for a client that idles
                if self._held:
                    self._hold(0)
                self._finished()
                if self._next is None and not self._closed:
                    self._waiter = self._sweep.loop.create_future()
                    await self._waiter
                    self._waiter = None
        except asyncio.CancelledError:
            self._flow = None
            self.abort()  # the client has gone, or we are shutting down

    def _hold(self, size: int) -> None:
        """Count what is held of a body now; 0 lets it go. Raises Overloaded."""
        held, self._held = self._held, size
        self._bodies.change(held, size)

    def _finished(self) -> None:
        if self._closed:
            return
        if not self.keep_alive:
            self.close()
        elif self._stalled_since != inf:
            # A client that takes no answers gets no more of them: they would pile up here.
            self._withheld = self._serving = True
        elif self._reader.buffered:
            self._advance()
        else:
            self._idle = True  # the next head has its own deadline, from its first byte
            self._deadline = self._sweep.now() + self._limits.keep_alive_seconds

    def _refuse(self, error: RouterError, head: RequestHead | None) -> None:
        """Answer before the request was read to its end. What follows it on the wire is never parsed."""
        answer = self._application.refused(error, head)
        if head is not None and head.method == "HEAD":
            answer = without_body(answer)
        self.write(answer)
        self._reader = RequestReader(self._limits)  # what was read of a body goes now, not when the client does
        self._hold(0)
        self._linger()

    def _linger(self) -> None:
        # Closing with unread bytes makes the kernel reset the connection, and the answer could be lost with it.
        self._lingering = True
        self._deadline = self._sweep.now() + LINGER_SECONDS
        if self._transport is not None:
            self._transport.write_eof()

    # Deadlines

    def sweep(self, now: float) -> None:
        """Close what is overdue."""
        if now - self._stalled_since >= self._limits.client_stall_seconds:
            self.abort("client_stalled")
        elif now < self._deadline:
            return
        elif self._lingering or not self._reader.in_request:
            self._deadline = inf
            self.abort() if self._lingering else self.close()
        else:
            self._deadline = inf
            self._refuse(RequestTimeout("the client stopped sending in the middle of a request"), None)

    # What `serve` uses

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens when the client has gone."""
        if self._transport is not None and not self._closed:
            self._transport.write(data)

    def hold_answer(self, size: int) -> None:
        """Count what is held of the answer now; 0 lets it go. Raises Overloaded."""
        held, self._held_answer = self._held_answer, size
        self._bodies.change(held, size)

    def attach(self, flow: Flow) -> None:
        """From now on a slow client slows this down."""
        self._flow = flow
        if self._stalled_since != inf:
            flow.pause()

    def close(self) -> None:
        """Close when everything written has been sent."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def cut(self, *, visibly: bool) -> None:
        """End the connection in the middle of a response, so that the client's own framing tells it so.

        `visibly` forces a reset: without chunked framing an orderly close would look like the end of the body.
        """
        transport = self._transport
        self._leave()
        if transport is None:
            return
        if visibly:
            raw = transport.get_extra_info("socket")
            if raw is not None and raw.family != socket.AF_UNIX:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()
        else:
            getattr(transport, "cut", transport.close)()

    def _leave(self) -> None:
        self._closed = self._lingering = True
        # A client that does not take the rest must not hold the connection for ever.
        self._deadline = self._sweep.now() + self._limits.client_stall_seconds

    def abort(self, because: str = "") -> None:
        """Close at once, whatever is still unsent."""
        self.left_because = because or self.left_because
        self._closed = True
        self._gone()
        if self._transport is not None:
            self._transport.abort()

    def stop(self, account: str, because: str) -> None:
        """End the request that is being served, if it is this account's, with an error for the client."""
        record = self.running
        if record is not None and self._task is not None and record.caller.account == account and not record.stopped:
            record.stopped = because
            self._task.cancel()

    def drain(self) -> None:
        """Close after the request in progress, or now."""
        self.draining = True
        self.keep_alive = False
        if not self._serving:
            self.close()
