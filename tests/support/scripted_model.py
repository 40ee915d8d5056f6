"""An upstream that speaks chat completions, responses and messages, and says what a function tells it to.

It serves real sockets from threads of its own. What it is asked is kept in `requests`. Not for tests that care about
single bytes: those play the upstream by hand (`upstream`).
"""

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any

from tests.support import dialects
from tests.support.dialects import Cut, Event, Reply


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    target: str
    fields: dict[str, str]
    """By lower-case name."""
    body: dict[str, Any]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def conversation(self) -> list[Any]:
        """Messages of whatever dialect, oldest first."""
        found = self.body.get("messages", self.body.get("input", []))
        return found if isinstance(found, list) else [found]

    def tools(self) -> dict[str, dict[str, Any]]:
        """What the agent offers, by name; those in name spaces too."""
        found: dict[str, dict[str, Any]] = {}
        offered = list(self.body.get("tools") or [])
        while offered:
            tool = offered.pop(0)
            if tool.get("type") == "namespace":
                offered += tool.get("tools", [])
                continue
            tool = tool.get("function", tool)
            found[str(tool.get("name", tool.get("type")))] = tool
        return found


@dataclass(frozen=True, slots=True)
class Failure:
    """A status that is no answer."""

    status: int
    body: dict[str, Any]
    fields: dict[str, str] = field(default_factory=dict)


Decide = Callable[[Asked], Reply | Failure]
_DIALECTS: dict[str, tuple[Callable[[Reply], dict[str, Any]], Callable[[Reply], Iterable[Event]]]] = {
    "/v1/chat/completions": (dialects.chat_answer, dialects.chat_events),
    "/v1/responses": (dialects.responses_answer, dialects.responses_events),
    "/v1/messages": (dialects.messages_answer, dialects.messages_events),
}


class _Connection(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def setup(self) -> None:
        super().setup()
        self.server.open_connections.add(self.connection)

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        fields = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, fields, body)
        self.server.requests.append(asked)
        if asked.path == "/v1/models":
            models = [{"id": dialects.MODEL, "object": "model", "created": 1, "owned_by": "script"}]
            self._json(200, {"object": "list", "data": models})
        elif asked.path == "/v1/messages/count_tokens":
            self._json(200, {"input_tokens": dialects.INPUT_TOKENS})
        elif asked.path in _DIALECTS:
            whole, events = _DIALECTS[asked.path]
            reply = self.server.decide(asked)
            if isinstance(reply, Failure):
                self._json(reply.status, reply.body, reply.fields)
            elif body.get("stream"):
                cut_at = reply.text if isinstance(reply, Cut) else ""
                self._stream(events(reply), cut_at=cut_at, done=asked.path == "/v1/chat/completions")
            else:
                self._json(200, whole(reply))
        else:
            self._json(404, {"error": {"message": f"no such path: {asked.path}", "type": "not_found_error"}})

    def _json(self, status: int, value: dict[str, Any], fields: Mapping[str, str] = MappingProxyType({})) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in fields.items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterable[Event], *, cut_at: str, done: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in events:
            text = f"event: {name}\ndata: {json.dumps(data)}\n\n" if name else f"data: {json.dumps(data)}\n\n"
            if cut_at and cut_at in text:
                self._chunk(text + text[: len(text) // 2])
                self.close_connection = True
                return
            self._chunk(text)
        if done:
            self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *_: object) -> None:
        """Nothing: `requests` has it."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # closing the server waits for them

    def __init__(self, decide: Decide) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.decide = decide
        self.requests: list[Asked] = []
        self.open_connections: set[socket.socket] = set()


class ScriptedModel:
    """Serves while it is entered."""

    def __init__(self, decide: Decide) -> None:
        self._server = _Server(decide)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> list[Asked]:
        """What it was asked, oldest first."""
        return self._server.requests

    @property
    def calls(self) -> list[Asked]:
        """Those that had a body: not the looks at whether it is there, which a gateway takes when it likes."""
        return [each for each in self.requests if each.method == "POST"]

    def __enter__(self) -> "ScriptedModel":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join(10)
        for connection in self._server.open_connections:
            with contextlib.suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
