"""The side of a test that watches a router in its own process (see `watched_router`)."""

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.raw_client import Answer, RawClient, post

CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
ROOT = Path(__file__).resolve().parents[2]
MOST_LAG_MS = 100
"""Bound of the 99th percentile of the event loop's lag."""
SOON_LEVEL = {"idle_clear_seconds": 0.5, "sweep_seconds": 0.1}
"""Limits under which kept upstream connections are soon gone, so that descriptors can be compared."""
_LEVEL_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Report:
    """How the process fares: lags in milliseconds, memory in KiB."""

    lag_p50_ms: int
    lag_p99_ms: int
    lag_most_ms: float
    rss_kib: int
    peak_kib: int
    descriptors: int
    tasks: int
    cpu_seconds: float
    outcomes: dict[str, int]
    suspicious: list[str]


class WatchedRouter:
    """One process, several doors; the one called `main` is meant where none is named."""

    def __init__(self, doors: Mapping[str, Mapping[str, str]], limits: Mapping[str, float]) -> None:
        self._settings = json.dumps({"doors": doors, "limits": limits})
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed in __exit__

    def __enter__(self) -> "WatchedRouter":
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.watched_router", self._settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )
        ready = self._read()
        self.ports: dict[str, dict[str, int]] = ready["ports"]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.load_verify_locations(cadata=ready["certificate"])
        return self

    def settle(self) -> None:
        """Serve one client, then take what there is as the level to return to."""
        self.serve_one()
        time.sleep(0.1)
        self.level = self.reset()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        self._errors.seek(0)
        text = self._errors.read()
        self._errors.close()
        if kind is None:
            assert (status, text) == (0, ""), text[-3000:]
        elif text:
            print(text[-3000:], file=sys.stderr)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the router's process has ended: {self._errors.read()[-3000:]}")
        value: dict[str, Any] = json.loads(line)
        return value

    def _ask(self, command: str) -> Report:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return Report(**self._read())

    def report(self) -> Report:
        """How it fares, since the last reset."""
        return self._ask("report")

    def reset(self) -> Report:
        """How it fares now; peaks and lags start again."""
        return self._ask("reset")

    # Clients

    def plain(self, door: str = "main") -> RawClient:
        """A client of the listener without TLS."""
        return RawClient(socket.create_connection(("127.0.0.1", self.ports[door]["plain"]), 20))

    def connect(self, door: str = "main") -> RawClient:
        """A client that has reached the tunnel's port."""
        return RawClient(socket.create_connection(("127.0.0.1", self.ports[door]["tunnel"]), 20))

    def tunnel(self, door: str = "main") -> RawClient:
        """A client inside the tunnel."""
        client = self.connect(door)
        client.send(CONNECT)
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        client.start_tls(self.context, "inference.local")
        return client

    def serve_one(self) -> float:
        """Let a new client do what clients do; the seconds that it took."""
        started = time.monotonic()
        with self.tunnel() as client:
            client.send(post())
            answer: Answer = client.answer()
            assert (answer.status, answer.complete) == (200, True)
        return time.monotonic() - started

    # Verdicts

    def wait_level(self) -> None:
        """Until descriptors and tasks are back where they were, before the deadlines of the test's limits have passed
        many times over."""
        deadline = time.monotonic() + _LEVEL_SECONDS
        while True:
            report = self.report()
            if report.descriptors <= self.level.descriptors and report.tasks <= self.level.tasks:
                return
            assert time.monotonic() < deadline, (
                f"{report.descriptors} descriptors and {report.tasks} tasks are left;"
                f" it began with {self.level.descriptors} and {self.level.tasks}"
            )
            time.sleep(0.05)

    @contextlib.contextmanager
    def withstanding(self, *, mib: float) -> Iterator[None]:
        """Whatever happens inside: memory grows by less than `mib` over the level at any time, the loop's lag stays
        bounded, the next client is served soon, and nothing is left behind."""
        self.reset()
        yield
        assert self.serve_one() < 5.0
        report = self.report()
        grown = (report.peak_kib - self.level.rss_kib) / 1024
        assert grown < mib, f"memory grew by {grown:.0f} MiB"
        assert report.lag_p99_ms < MOST_LAG_MS, f"lag: p99 {report.lag_p99_ms} ms, worst {report.lag_most_ms:.0f} ms"
        self.wait_level()
        assert self.report().suspicious == []
