"""The outermost layer: headers that every answer has, HEAD, and errors that arose outside of every path."""

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pointsman.core.control_errors import ControlError, InvalidRequest
from pointsman.core.fault_place import fault_place
from pointsman.gateway.rest.refusals import InternalError, NoSuchVersion, error_response

_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


class Boundary:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, say: Callable[[str], None]) -> None:
        self._app = app
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (refusal := _refusal(scope)) is not None:
            await error_response(refusal, headers={"connection": "close", **_HEADERS})(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # Whoever carries the answer out still sees HEAD, and leaves the body away.
            scope = {**scope, "method": "GET"}
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            self._say(f"internal error: {fault_place(error)}")
            if not started:
                await error_response(InternalError())(scope, receive, send_with_headers)
            else:
                # The server logs what it is given, and the original's text may hold what the request held.
                raise ConnectionAbortedError("the answer broke off") from None


def _refusal(scope: Scope) -> ControlError | None:
    """What the server's parser lets pass, and others on the way might read in another way."""
    if scope["http_version"] not in ("1.0", "1.1"):
        return NoSuchVersion("send HTTP/1.1")
    names = {name for name, _ in scope["headers"]}
    if {b"content-length", b"transfer-encoding"} <= names:
        return InvalidRequest("content-length and transfer-encoding exclude each other; send one")
    return None
