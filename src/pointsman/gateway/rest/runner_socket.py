"""`GET /api/v1/runners/{id}/ws`: where runners dial in. Who may is judged before the upgrade.

Owns the answers to an upgrade and the carrying of frames. What frames mean is `runner_hub`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from pointsman.core.control_errors import ControlError
from pointsman.gateway.runner_hub import TOO_LARGE, VIOLATION, RunnerHub
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.wire.runner_frames import SUBPROTOCOL, FrameError, FrameTooLarge

PATH = "/api/v1/runners/{runner_id}/ws"
TOKEN_FIELD = "x-runner-token"  # noqa: S105  # a field's name
_CLOSE_SECONDS = 2.0
_BROKEN_CODES = (1002, 1007, VIOLATION)
"""That a websocket ended with because of what came over it: not of its protocol, not UTF-8, too much of nothing."""

Authenticate = Callable[[str, str], Awaitable[RunnerIdentity | None]]
"""Whose token it is, by the runner's id and the token; None for nobody's. Raises ControlError without a store."""


def add_runner_socket(api: FastAPI, hub: RunnerHub, authenticate: Authenticate) -> None:
    """Serve the path on an application."""

    async def runner_socket(websocket: WebSocket, runner_id: str) -> None:
        if "origin" in websocket.headers:
            await _deny(websocket, 403, "permission_denied", "a browser is no runner")
            return
        tokens = websocket.headers.getlist(TOKEN_FIELD)
        try:
            identity = await authenticate(runner_id, tokens[0]) if len(tokens) == 1 and tokens[0] else None
        except ControlError as error:
            await _deny(websocket, error.http_status, error.code, error.text)
            return
        if identity is None:
            told = "the runner's token is not valid; run: pointsman runner register"
            await _deny(websocket, 401, "unauthenticated", told)
            return
        awaits_served = SUBPROTOCOL in websocket.scope["subprotocols"]
        await websocket.accept(SUBPROTOCOL if awaits_served else None)

        async def confirm() -> bool:
            return await authenticate(runner_id, tokens[0]) == identity

        await hub.serve(identity, _Socket(websocket, awaits_served=awaits_served), confirm)

    api.router.add_api_websocket_route(PATH, runner_socket)


async def _deny(websocket: WebSocket, status: int, code: str, message: str) -> None:
    """Answer the upgrade as any other request."""
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    body = {"error": {"code": code, "message": message}}
    await websocket.send_denial_response(JSONResponse(body, status, headers))


class _Socket:
    """See RunnerSocket."""

    def __init__(self, websocket: WebSocket, *, awaits_served: bool) -> None:
        self._websocket = websocket
        self.awaits_served = awaits_served

    async def receive(self) -> str | None:
        message = await self._websocket.receive()
        if message["type"] == "websocket.receive":
            text: str | None = message.get("text")
            if text is None:
                raise FrameError("a frame is not text")
            return text
        if message.get("code") == TOO_LARGE:
            raise FrameTooLarge("a frame is longer than a websocket takes")
        if message.get("code") in _BROKEN_CODES:
            raise FrameError("what came is not of a websocket")
        return None

    async def send(self, frame: bytes) -> None:
        try:
            await self._websocket.send_text(frame.decode())
        except WebSocketDisconnect:
            raise ConnectionResetError("the runner has gone") from None

    async def close(self, code: int) -> None:
        if WebSocketState.DISCONNECTED in (self._websocket.client_state, self._websocket.application_state):
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._websocket.close(code)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            return
