"""One answer of a model's server, in frames: what a `start` begins and each `next` continues.

The request is always the same: POST to the chat completions of the approved address, with a head of our own. Only the
body is the gateway's.
"""

import asyncio
import contextlib

from pointsman.core.limits import RunnerLimits
from pointsman.core.runner_endpoint import RunnerEndpoint, parse_runner_endpoint
from pointsman.runner.model_server import Broken, ModelServer, Unavailable, dial
from pointsman.wire.event_lines import EventLines, LineTooLong, is_done
from pointsman.wire.response import ResponseHead
from pointsman.wire.runner_body import asks_for_stream
from pointsman.wire.runner_frames import ModelRequest, ModelResponse

_REDIRECTS, _REFUSALS = range(300, 400), range(400, 600)


def request_bytes(endpoint: RunnerEndpoint, body: bytes) -> bytes:
    """The whole request: everything but the body is fixed by what the operator approved."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\n"
        b"host: %b\r\n"
        b"content-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\n"
        b"accept-encoding: identity\r\n"
        b"content-length: %d\r\n"
        b"connection: close\r\n"
        b"\r\n"
        b"%b"
    ) % (endpoint.authority.encode(), len(body), body)


class _Failed(Exception):
    """The answer ends here, with a status and a code of DESIGN section 8."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


_TOO_LARGE = (502, "runner_frame_too_large")
_READ_ERROR = (502, "runner_upstream_read_error")


class Fetch:
    """A call under way. Ask for `frame` once per credit; `close` it in the end."""

    def __init__(self, request: ModelRequest, limits: RunnerLimits) -> None:
        """`request`: a start that the allowlist approves of."""
        self._id = request.request_id
        self._endpoint = parse_runner_endpoint(request.base_url)
        self._body = bytes(request.body)
        self._limits = limits
        self._server: ModelServer | None = None
        self._lines = EventLines(limits.data_bytes)
        self._status = 0
        self._sent = 0
        self._has_ended = False

    async def frame(self) -> ModelResponse:
        """The next frame; it fails in no other way than by one that says so."""
        try:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    data, done = await self._next()
            except TimeoutError:
                raise _Failed(504, "runner_proxy_timeout") from None
            except LineTooLong:
                raise _Failed(*_TOO_LARGE) from None
            except Broken:
                raise _Failed(*_READ_ERROR) from None
            return self._framed(data, done=done)
        except _Failed as failed:
            return ModelResponse(self._id, failed.status, error=failed.code, done=True)

    def _framed(self, data: bytes, *, done: bool) -> ModelResponse:
        self._sent += len(data)
        if self._sent > self._limits.response_bytes:
            raise _Failed(502, "runner_response_limit")
        try:
            return ModelResponse(self._id, self._status, data.decode(), done)
        except UnicodeDecodeError:
            raise _Failed(*_READ_ERROR) from None

    async def _next(self) -> tuple[bytes, bool]:
        if self._server is not None:
            return await self._next_line(self._server)
        try:
            server = self._server = await dial(self._endpoint, self._limits.connect_seconds)
        except Unavailable:
            raise _Failed(502, "runner_upstream_unavailable") from None
        head = await server.ask(request_bytes(self._endpoint, self._body))
        is_stream = asks_for_stream(self._body)
        self._body = b""
        self._check(head, is_stream)
        self._status = head.status
        return await (self._next_line(server) if is_stream else self._whole(server))

    @staticmethod
    def _check(head: ResponseHead, is_stream: bool) -> None:
        if head.status in _REDIRECTS:
            raise _Failed(502, "runner_upstream_error")
        if head.status in _REFUSALS:
            raise _Failed(head.status, "runner_upstream_error")  # what it says stays here
        coded = any(
            name.lower() == b"content-encoding" and value.strip().lower() not in (b"", b"identity")
            for name, value in head.fields
        )
        if coded or head.is_event_stream != is_stream:  # not what was asked for
            raise _Failed(*_READ_ERROR)

    async def _next_line(self, server: ModelServer) -> tuple[bytes, bool]:
        """One line, and whether it is the last; a stream that ends without saying so was cut."""
        while True:
            line = self._lines.next_line()
            if line is not None:
                return line, is_done(line)
            if self._has_ended:
                rest = self._lines.rest()
                if is_done(rest):
                    return rest, True
                raise Broken("the stream ended without [DONE]")
            data = await server.read()
            self._lines.receive(data)
            self._has_ended = not data

    async def _whole(self, server: ModelServer) -> tuple[bytes, bool]:
        body = bytearray()
        while data := await server.read():
            body += data
            if len(body) > self._limits.data_bytes:
                raise _Failed(*_TOO_LARGE)
        return bytes(body), True

    def close(self) -> None:
        """Let the model's server go."""
        with contextlib.suppress(OSError):
            if self._server is not None:
                self._server.close()
