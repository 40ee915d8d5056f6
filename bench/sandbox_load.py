"""A sandbox's proxy, and clients in it that never stop: one with small requests, one with streams."""

import http.client
import json
import threading
import time
from dataclasses import dataclass

from tests.support.processes import ProxyProcess

_PATH = "/v1/chat/completions"
_BODY = json.dumps({"model": "any", "messages": [{"role": "user", "content": "hello"}]})
_PAUSE_SECONDS = 0.03
_EVENTS = 6
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """What the upstream was asked with, as it told."""

    at: float
    """Monotonic; when the answer had come."""
    operator: int
    record: int
    route: int


class RequestFailed(Exception):
    """An answer that is not the upstream's, or not whole."""


class Connection:
    """Through the door; one request after the other."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._http = http.client.HTTPSConnection(
            "127.0.0.1", proxy.port, timeout=_PATIENCE_SECONDS, context=proxy.client_context()
        )
        self._http.set_tunnel("inference.local", 443)

    def ask(self, events: int = 0) -> Served:
        """One request, answered in a stream of so many events. Raises RequestFailed, OSError or HTTPException."""
        self._http.request("POST", _PATH + (f"?stream={events}" if events else ""), _BODY)
        response = self._http.getresponse()
        body = response.read()
        if response.status != 200:
            raise RequestFailed(f"{response.status} {body.decode(errors='replace')[:300]}")
        if events:
            if not body.endswith(b"data: [DONE]\n\n") or body.count(b"data: ") != events:
                raise RequestFailed(f"cut: {body[-200:]!r}")
            body = body.partition(b"\n")[0].removeprefix(b"data: ")
        return Served(time.monotonic(), **json.loads(body))

    def close(self) -> None:
        """Hang up."""
        self._http.close()


class SandboxUnderLoad:
    """Counts what is served, and keeps what fails."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self.proxy = proxy
        self.served = 0
        self.latest: Served | None = None
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(events,), daemon=True) for events in (0, _EVENTS)]

    def start(self) -> None:
        """Ask from now on."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _run(self, events: int) -> None:
        connection = Connection(self.proxy)
        while not self._stop.is_set():
            try:
                served = connection.ask(events)
            except (OSError, RequestFailed, http.client.HTTPException, ValueError) as error:
                self.failures.append(
                    f"{type(error).__name__}: {error}" if not isinstance(error, RequestFailed) else str(error)
                )
                connection.close()
                connection = Connection(self.proxy)
                self._stop.wait(0.1)
                continue
            self.served += 1
            if not events:
                self.latest = served
            self._stop.wait(_PAUSE_SECONDS)
        connection.close()
