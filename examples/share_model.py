"""A model on somebody's machine, asked through a gateway: what one developer and one operator do, in one program.

    .venv/bin/python examples/share_model.py

A model's server on loopback, of the standard library, takes the place of Ollama. A gateway starts; its operator makes a
key; the developer registers their machine and approves the model; the runner dials out; a client that knows the gateway
alone streams an answer. Then the runner stops, and the client is told so at once.
"""

import contextlib
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POINTSMAN = str(Path(sys.executable).with_name("pointsman"))
MODEL = "parrot:1b"
WORDS = ("A ", "model ", "of ", "this ", "machine ", "says ", "hello.")


class ModelServer(http.server.BaseHTTPRequestHandler):
    """Lists one model, and streams one answer."""

    def do_GET(self) -> None:
        self._answer("application/json", json.dumps({"data": [{"id": MODEL}]}).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chunks = [{"model": asked["model"], "choices": [{"index": 0, "delta": {"content": word}}]} for word in WORDS]
        events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
        self._answer("text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def model_server() -> Iterator[str]:
    """Its base URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ModelServer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def started(*words: str) -> Iterator[dict[str, str]]:
    """A `pointsman` that runs on, and what its ready line says."""
    with subprocess.Popen([POINTSMAN, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        rest = threading.Thread(target=process.stderr.read)  # so that it never waits for us
        try:
            said = ""
            for line in process.stderr:
                said += line
                if line.startswith("pointsman: ready "):
                    rest.start()
                    yield dict(word.split("=", 1) for word in line.split()[2:])
                    return
            sys.exit(f"'pointsman {words[0]}' ended: {said}")
        finally:
            process.terminate()
            if rest.is_alive():
                rest.join()


def pointsman(*words: str) -> None:
    """A command of the operator's or the developer's, as each would type it."""
    print(f"$ pointsman {words[0]} {words[1]}", flush=True)
    subprocess.run([POINTSMAN, *words], check=True, stdin=subprocess.DEVNULL)


def wait_for(data: str, alias: str) -> None:
    """Until clients are told of a new name: within a quarter of a second, on a busy machine later."""
    for _ in range(300):
        with urllib.request.urlopen(f"http://{data}/v1/models", timeout=30) as answer:
            if alias in [model["id"] for model in json.load(answer)["data"]]:
                return
        time.sleep(0.1)
    sys.exit(f"the gateway does not serve {alias}")


def ask(data: str, alias: str) -> None:
    """A client: prints the answer while it comes, or why there is none."""
    body = {"model": alias, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    url = f"http://{data}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    chunk: dict[str, Any] = json.loads(line[6:])
                    print(chunk["choices"][0]["delta"]["content"], end="", flush=True)
                elif line.startswith(b"data: [DONE]"):
                    print(f"\n[DONE] from {answer.headers['x-pointsman-model']}")
    except urllib.error.HTTPError as error:
        code = json.load(error)["error"]["code"]
        print(f"{error.code} {code} within {'a second' if time.monotonic() - began < 1 else 'seconds'}")


def main() -> None:
    listeners = [word for name in ("data", "control", "grpc") for word in (f"--listen-{name}", "127.0.0.1:0")]
    with (
        tempfile.TemporaryDirectory() as directory,
        model_server() as base_url,
        started("gateway", "--data-dir", f"{directory}/gateway", *listeners) as gateway,
    ):
        operator = ("--gateway", f"http://{gateway['grpc']}", "--token-file", f"{directory}/gateway/admin.token")
        key = f"{directory}/ada.key"
        may = ("--permission", "runners:manage", "--permission", "models:create")
        pointsman("key", "create", "ada", *may, "--out", key, *operator)
        mine = ("--config-dir", f"{directory}/ada")
        control = f"http://{gateway['control']}"
        found = ("--url", base_url, "--register", MODEL)
        pointsman("runner", "register", "desk", "--gateway", control, "--key-file", key, *found, *mine)
        print("$ pointsman runner start", flush=True)
        with started("runner", "start", *mine):
            wait_for(gateway["data"], "parrot-1b")
            ask(gateway["data"], "parrot-1b")
        print("the runner has stopped", flush=True)
        ask(gateway["data"], "parrot-1b")


if __name__ == "__main__":
    main()
