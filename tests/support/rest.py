"""The control API listening on a port of its own, over a real control plane; and a client that hides nothing."""

import asyncio
import http.client
import json
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.gateway.rest import ControlServer, build_api
from pointsman.gateway.rest.server import ListenerLimits
from pointsman.gateway.rest.strict_request import BodyLimits
from pointsman.gateway.watching import Watching
from pointsman.store.settings import StoreSettings
from tests.support import evidence
from tests.support.canary import KEY
from tests.support.control_plane import ADMIN_TOKEN, RunningControlPlane, control_plane

BEARER = {"authorization": f"Bearer {ADMIN_TOKEN}"}
OPENAI = {
    "name": "openai",
    "type": "openai",
    "credentials": {"OPENAI_API_KEY": KEY},
    "config": {"OPENAI_BASE_URL": "mock://answers"},
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the API."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error, whose shape is checked."""
        assert set(self.json) == {"error"}, self.body
        assert set(self.json["error"]) == {"code", "message"}
        message: str = self.json["error"]["message"]
        return message


class Pieces(list[bytes]):
    """A body that goes out chunked."""


def asked_over_http(
    port: int,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] = BEARER,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """One request to a control listener on this machine."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    fields = dict(headers)
    raw: bytes | Pieces | None = None
    if body is not None:
        raw = body if isinstance(body, bytes | Pieces) else json.dumps(body).encode()
        fields.setdefault("content-type", "application/json")
    try:
        connection.request(method, path, raw, fields)
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
    finally:
        connection.close()
    evidence.keep("client", answer.body)
    return answer


class RunningApi:
    """The server, on the control plane's loop."""

    def __init__(self, running: RunningControlPlane) -> None:
        self.running = running
        self.records: list[str] = []
        """What was logged, of every logger, and what the API said."""

    def start(self, **options: Any) -> None:
        """`limits`, `body_limits`, `watching`."""
        self.api: FastAPI = build_api(
            self.running.control,
            "0.0.0",
            self.records.append,
            options.pop("body_limits", None),
            options.pop("watching", None),
        )
        sock = socket.create_server(("127.0.0.1", 0))
        self.port: int = sock.getsockname()[1]
        self.server: ControlServer = self.running.call(self._make(sock, options))
        loop = self.running._loop
        self.serving: Future[None] = asyncio.run_coroutine_threadsafe(self.server.serve(), loop)

    async def _make(self, sock: socket.socket, options: dict[str, Any]) -> ControlServer:
        return ControlServer(self.api, sock, **options)

    def close(self) -> None:
        self.running.call(self.server.close())
        self.serving.result(10)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = BEARER,
        context: ssl.SSLContext | None = None,
    ) -> Answer:
        """One request on a connection of its own; bytes go out as they are, anything else as JSON."""
        return asked_over_http(self.port, method, path, body, headers, context)

    def raw(self, data: bytes, until: bytes = b"") -> bytes:
        """Bytes on a connection of their own, and what comes back: to the end, or up to `until`."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65536):
                received += piece
                if until and until in received:
                    break
        evidence.keep("client", received)
        return received

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask("GET", f"/api/v1{path}", **options)

    def post(self, path: str, body: object, **options: Any) -> Answer:
        return self.ask("POST", f"/api/v1{path}", body, **options)

    def put(self, path: str, body: object, **options: Any) -> Answer:
        return self.ask("PUT", f"/api/v1{path}", body, **options)

    def patch(self, path: str, body: object, **options: Any) -> Answer:
        return self.ask("PATCH", f"/api/v1{path}", body, **options)

    def delete(self, path: str, **options: Any) -> Answer:
        return self.ask("DELETE", f"/api/v1{path}", **options)

    def sandbox_bearer(self, name: str = "box") -> dict[str, str]:
        """The header of a sandbox's token, made by the API."""
        made = self.post("/sandbox-tokens", {"name": name})
        assert made.status == 201, made.body
        return {"authorization": f"Bearer {made.json['token']}"}

    def key_bearer(
        self, *permissions: str, account: str = DEFAULT_ACCOUNT, routes: Sequence[str] = ()
    ) -> dict[str, str]:
        """The header of a new key with these permissions, made by the API."""
        headers = {**BEARER, "x-pointsman-account": account}
        made = self.post("/keys", {"permissions": list(permissions), "routes": list(routes)}, headers=headers)
        assert made.status == 201, made.body
        return {"authorization": f"Bearer {made.json['key']}"}


class _Kept(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@contextmanager
def rest_api(
    directory: Path,
    limits: ListenerLimits | None = None,
    body_limits: BodyLimits | None = None,
    watching: Watching | None = None,
    settings: StoreSettings | None = None,
    endpoints: DirectEndpoints | None = None,
) -> Iterator[RunningApi]:
    """A gateway's control API that listens."""
    with control_plane(directory, settings=settings, endpoints=endpoints) as running:
        api = RunningApi(running)
        kept = _Kept(api.records)
        logging.getLogger().addHandler(kept)
        try:
            api.start(limits=limits, body_limits=body_limits, watching=watching)
            yield api
            api.close()
        finally:
            logging.getLogger().removeHandler(kept)
            evidence.keep("log", "\n".join(api.records))
