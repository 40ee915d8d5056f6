"""A runner that a test plays to a real gateway process: registered there, with models, its line driven by frames."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.gateway_process import GatewayProcess
from tests.support.rest import Answer, asked_over_http

_SECONDS = 20


class PlayedLine:
    """Its websocket, in force."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self._socket.recv(_SECONDS))
        return frame

    def answer(self, request: dict[str, Any], data: str = "", **more: Any) -> None:
        frame = {"type": "model_response", "request_id": request["request_id"], "data": data, **more}
        self._socket.send(json.dumps(frame))

    def stream(self, *lines: str) -> dict[str, Any]:
        """Answer one request, a line for each that is asked for; the request."""
        start = self.receive()
        assert start["operation"] == "start"
        for number, line in enumerate(lines, 1):
            self.answer(start, line, done=number == len(lines))
            if number < len(lines):
                assert self.receive()["operation"] == "next"
        return start


class PlayedRunner:
    """Its record."""

    def __init__(self, gateway: GatewayProcess, name: str = "laptop") -> None:
        self._gateway = gateway
        self.name = name
        made = self.rest("POST", "/runners/register", {"name": name})
        assert made.status == 201, made.body
        self.id: str = made.json["id"]
        self._token: str = made.json["token"]

    def rest(self, method: str, path: str, body: object = None) -> Answer:
        """As the admin."""
        bearer = {"authorization": f"Bearer {self._gateway.token_file.read_text().strip()}"}
        return asked_over_http(self._gateway.ports["control"], method, f"/api/v1{path}", body, bearer)

    def model(self, alias: str, identifier: str = "qwen:7b") -> str:
        """Register one; its id."""
        about = {"name": alias, "model_identifier": identifier, "api_endpoint": "http://localhost:11434/v1"}
        made = self.rest("POST", f"/runners/{self.id}/models", {**about, "alias": alias})
        assert made.status == 201, made.body
        model_id: str = made.json["id"]
        return model_id

    @contextlib.contextmanager
    def dialled_in(self) -> Iterator[PlayedLine]:
        """Connected, until its block ends; the gateway has noticed both."""
        url = f"ws://127.0.0.1:{self._gateway.ports['control']}/api/v1/runners/{self.id}/ws"
        before = len(self._gateway.lines)
        with connect(url, additional_headers={"X-Runner-Token": self._token}, compression=None, proxy=None) as socket:
            socket.send(json.dumps({"type": "hello", "runner_id": self.id, "model_proxy_version": 1}))
            self._gateway.said(f"runner {self.id} of default is connected", before)
            yield PlayedLine(socket)
        self._gateway.said(f"runner {self.id} of default has gone", before)
