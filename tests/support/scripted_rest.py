"""A gateway's REST that a test plays to the runner's commands, in a thread: what it is asked is kept."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import canary
from tests.support.runner_gateway import RUNNER_ID


class ScriptedRest:
    """Registers whatever is right; `refuse` answers instead."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        """Path, Authorization and document of each request."""
        self.refuse: tuple[int, dict[str, Any]] | None = None
        self.runner_id = RUNNER_ID
        self.forgotten = ""
        """The id of a runner that was deleted."""
        self.token = canary.TOKEN
        self.presence = "online"
        self._models: dict[str, str] = {}

    def answer(self, path: str, authorization: str | None, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append((path, authorization, document))
        if self.refuse is not None:
            return self.refuse
        if path == f"/api/v1/runners/{self.runner_id}":
            return 200, {"id": self.runner_id, "presence": self.presence, "last_seen_at": "2026-01-02T03:04:05Z"}
        if path == "/api/v1/runners/register":
            if self.forgotten and document.get("runner_id") == self.forgotten:
                return 404, {"error": {"code": "not_found", "message": "no such runner"}}
            return 201, {"id": self.runner_id, "name": document["name"], "token": self.token}
        key = f"{document['api_endpoint']} {document['model_identifier']}"
        known = key in self._models
        model_id = self._models.setdefault(key, f"{len(self._models) + 1:032x}")
        more = {"id": model_id, "alias": f"alias-{document['model_identifier']}", "endpoint_type": "runner"}
        return 200 if known else 201, {**document, **more}


@contextlib.contextmanager
def scripted_rest() -> Iterator[ScriptedRest]:
    rest = ScriptedRest()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"
            status, document = rest.answer(self.path, self.headers["Authorization"], json.loads(body))
            data = json.dumps(document).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", rest.url + "/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    rest.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield rest
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
