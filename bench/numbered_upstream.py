"""An upstream whose URL, key and model carry numbers: a record half of one change and half of another would be seen.

Operator 2 writes, as its 17th record, the URL `/op2/17/v1` and the key `key-2-17`, and as its 5th route the model
`model-2-5`. A request in which these do not belong together is `wrong`.
"""

import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PATH = re.compile(r"/op(\d+)/(\d+)/v1/chat/completions(?:\?stream=(\d+))?")
_KEY = re.compile(r"Bearer key-(\d+)-(\d+)")
_MODEL = re.compile(r"model-(\d+)-(\d+)")
EVENT_SECONDS = 0.1
_MUTE_SECONDS = 60.0


class NumberedUpstream(ThreadingHTTPServer):
    """Answers with the numbers that a request came with."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.wrong: list[str] = []
        self.mute = threading.Event()
        """Set: requests below /mute/ are let go."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "NumberedUpstream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mute.set()
        self.shutdown()
        self.server_close()

    def base_url(self, operator: int, record: int) -> str:
        """Of one record."""
        return f"http://127.0.0.1:{self.server_address[1]}/op{operator}/{record}/v1"

    @property
    def mute_url(self) -> str:
        """Where nothing is answered."""
        return f"http://127.0.0.1:{self.server_address[1]}/mute/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of it."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: NumberedUpstream

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/mute/"):
            self.server.mute.wait(_MUTE_SECONDS)
            self.close_connection = True
            return
        key, model = self.headers.get("authorization", ""), str(json.loads(body).get("model"))
        found = _PATH.fullmatch(self.path), _KEY.fullmatch(key), _MODEL.fullmatch(model)
        path, keyed, modelled = found
        if path is None or keyed is None or modelled is None:
            self._refuse(f"{self.path} {key} {model}: not one of ours")
        elif (path[1], path[2]) != (keyed[1], keyed[2]) or path[1] != modelled[1]:
            self._refuse(f"{self.path} {key} {model}: halves of different records")
        else:
            numbers = {"operator": int(path[1]), "record": int(path[2]), "route": int(modelled[2])}
            self._serve(json.dumps(numbers).encode(), int(path[3] or 0))

    def _refuse(self, text: str) -> None:
        self.server.wrong.append(text)
        self.send_error(400)

    def _serve(self, numbers: bytes, events: int) -> None:
        self.send_response(200)
        if not events:
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(numbers)))
            self.end_headers()
            self.wfile.write(numbers)
            return
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(events):
            event = b"data: %b\n\n" % (numbers if number < events - 1 else b"[DONE]")
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            time.sleep(EVENT_SECONDS)
        self.wfile.write(b"0\r\n\r\n")
