"""What the chain's cells of the fault campaign break: a gateway with limits and secrets, callers, and an upstream.

Owns starting them and what callers and the upstream saw; what is broken is the cells'.
"""

import contextlib
import http.client
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.processes import free_ports
from tests.support.databases import PostgresServer
from tests.support.gateway_process import GatewayProcess, fetch
from tests.support.model_client import ModelClient, Said

CALLERS = 6
_ANSWER_SECONDS = 0.003
"""So that some requests are always under way."""
_EVENT_SECONDS = 0.05
_PAUSE_SECONDS = 0.004
_REFUSED_PAUSE_SECONDS = 0.1
"""Or the small disk would soon be full of what the operation log tells of it."""
_MUTE_SECONDS = 60.0
_RECOVERY_SECONDS = 30.0
_QUICK = 2.0
"""Of an answer, when nothing is broken, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a caller."""

    began: float
    ended: float
    end: str
    """The status, with the code of an error or the provider that answered; or how it broke."""


class CountingProviders(ThreadingHTTPServer):
    """All providers, by the first step of the path; notes who was asked and with which key."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answered: Counter[str] = Counter()
        """Successes, by provider."""
        self.keys: Counter[tuple[str, str]] = Counter()
        """By provider and key."""
        self.mute: set[str] = set()
        """Providers that take requests and say nothing."""
        self.turn = threading.Lock()
        self.over = threading.Event()
        self.streams_end = threading.Event()
        """Until then each stream goes on."""
        self.word = "word "
        """Of each event."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "CountingProviders":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()

    def url(self, name: str) -> str:
        """Of a provider."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Gateways that are killed are part of it."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CountingProviders

    def do_GET(self) -> None:
        """A gateway that starts asks whether anybody is there."""
        self._send(b"{}")

    def do_POST(self) -> None:
        name = self.path.split("/")[1]
        asked = self.rfile.read(int(self.headers["content-length"]))
        if name in self.server.mute:
            self.server.over.wait(_MUTE_SECONDS)
            self.close_connection = True
            return
        time.sleep(_ANSWER_SECONDS)
        with self.server.turn:
            self.server.answered[name] += 1
            self.server.keys[name, self.headers.get("authorization", "").removeprefix("Bearer ")] += 1
        if b'"stream": true' in asked:
            self._stream()
        else:
            self._send(json.dumps({"by": name}).encode())

    def _stream(self) -> None:
        """Events until the streams may end, or their reader has gone."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.streams_end.wait(_EVENT_SECONDS) and not self.server.over.is_set():
                self._event({"choices": [{"delta": {"content": self.server.word}}]})
            self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.close_connection = True

    def _event(self, data: dict[str, Any]) -> None:
        event = f"data: {json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class ChainWorld:
    """One cell's. The chain `fast` asks `limited`, then, unless `alone`, the fallback `open`; `kept` holds its key."""

    options: Sequence[str] = ()
    """Of each gateway, besides."""
    pause_seconds = _PAUSE_SECONDS
    """Of a caller, behind an answer."""

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        *,
        limit: int = 10**6,
        alone: bool = False,
        server: PostgresServer | None = None,
        gateways: int = 1,
    ) -> None:
        self.directory = directory
        self.server = server
        self.limit = limit
        self.upstream = stack.enter_context(CountingProviders())
        self.secrets = directory / "secrets"
        self.secrets.mkdir(mode=0o700)
        self.calls: list[Call] = []
        self.recovered_at = 0.0
        """Monotonic, the last time; 0: never looked."""
        self.file = directory / "pointsman.yaml"
        self.file.write_text(self.configuration(limit, alone=alone))
        options = [f"--config={self.file}", f"--secrets-dir={self.secrets}"]
        if server is not None:
            options += [f"--database-url={server.url(server.new_database())}"]
        data = directory / "data"
        self.gateways = [GatewayProcess(data, free_ports(3), *options, *self.options) for _ in range(gateways)]
        for gateway in self.gateways:
            stack.callback(gateway.close)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(at,), daemon=True) for at in range(CALLERS)]

    def configuration(self, limit: int, *, alone: bool, timeout: float = 300) -> str:
        """The gateway's file."""
        kind = "type: openai_compatible, model: m"
        limits = f", daily_request_limit: {limit}" if limit else ""
        has_file = "" if (self.secrets / "limited_api_key").exists() else ", api_key: none"
        fallback = "" if alone else ", fallback: open"
        return (
            "providers:\n"
            f"  - {{name: limited, {kind}, base_url: '{self.upstream.url('limited')}'{limits}{has_file}}}\n"
            f"  - {{name: open, {kind}, base_url: '{self.upstream.url('open')}', api_key: none}}\n"
            f"routes:\n  - {{name: fast, candidates: [limited]{fallback}, request_timeout: {timeout:g}}}\n"
        )

    @property
    def gateway(self) -> GatewayProcess:
        """The first, or only."""
        return self.gateways[0]

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """Gateways run, and callers never stop."""
        for gateway in self.gateways:
            if gateway.process is None:
                gateway.start()
        for thread in self._threads:
            thread.start()
        try:
            self.until(lambda: len(self.calls) >= CALLERS, "nobody is answered")
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Callers ask no more, and have their answers."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(60)

    def _call(self, number: int) -> None:
        port = self.gateways[number % len(self.gateways)].ports["data"]
        while not self._stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException), self.client(port) as client:
                while not self._stop.is_set():
                    is_served = self._one(client)
                    time.sleep(self.pause_seconds if is_served else _REFUSED_PAUSE_SECONDS)
            time.sleep(0.02)

    def _one(self, client: ModelClient) -> bool:
        began, end = time.monotonic(), ""
        try:
            said = self._asked(client)
            answer = said.json
            end = f"{said.status} {answer['by'] if said.status == 200 else answer['error']['code']}"
            return said.status == 200
        except (OSError, http.client.HTTPException) as error:
            end = f"broken: {type(error).__name__}"
            raise
        finally:
            self.calls.append(Call(began, time.monotonic(), end))

    def client(self, port: int) -> ModelClient:
        """Of a gateway's listener."""
        return ModelClient(port)

    def _asked(self, client: ModelClient) -> Said:
        return client.ask("fast")

    def until(self, condition: Callable[[], bool], problem: str, seconds: float = _RECOVERY_SECONDS) -> float:
        """Seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + seconds:
                raise TimeoutError(f"{problem} after {seconds:g} s")
            time.sleep(0.01)
        return time.monotonic() - began

    def recovered(self, mended: float, by: str = "limited") -> float:
        """Seconds until every caller but for chance is answered by that provider, quickly. Raises TimeoutError."""
        return self.all_end((f"200 {by}",), mended)

    def all_end(self, ends: Sequence[str], mended: float) -> float:
        """The same for calls that end in one of some ways."""

        def well() -> bool:
            recent = self.calls[-2 * CALLERS :]
            return all(each.began > mended and each.end in ends and each.ended - each.began < _QUICK for each in recent)

        self.until(well, f"not everybody ends with {ends}: {Counter(each.end for each in self.calls[-12:])}")
        self.recovered_at = time.monotonic()
        return self.recovered_at - mended

    def seen(self, since: float = 0.0) -> Counter[str]:
        """How calls ended that began since then."""
        return Counter(each.end for each in list(self.calls) if each.began >= since)

    def slowest(self, since: float = 0.0) -> float:
        """Of the calls that began since then, in seconds."""
        return max((each.ended - each.began for each in list(self.calls) if each.began >= since), default=0.0)

    def live(self, provider: str = "limited") -> dict[str, Any]:
        """A row of `/stats/live`."""
        _, body = fetch(self.gateway.ports["control"], "/stats/live", self.gateway.token_file.read_text().strip())
        rows: list[dict[str, Any]] = json.loads(body)["providers"]
        return next(row for row in rows if row["provider_name"] == provider)

    def operations(self) -> list[dict[str, Any]]:
        """Lines of the operation log."""
        paths = sorted((self.gateway.directory / "operations").glob("operations-*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def said(self) -> list[str]:
        """What the gateways said, without times, each kind once."""
        lines = [line.strip() for gateway in self.gateways for line in gateway.lines]
        return list(dict.fromkeys(lines))

    def write_secret(self, data: bytes) -> None:
        """The key of `limited`, by rename."""
        draft = self.secrets / "draft"
        draft.write_bytes(data)
        draft.chmod(0o600)
        os.replace(draft, self.secrets / "limited_api_key")
