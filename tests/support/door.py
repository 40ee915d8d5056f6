"""The data plane in a thread of its own, for tests that drive it with blocking sockets."""

import asyncio
import io
import socket
import ssl
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from pointsman.core.candidate import Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.core.secret import Secret
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.router import BufferedResponse, Router
from pointsman.sandbox.authority import CertificateAuthority
from pointsman.testing import FakeClock
from tests.support import evidence
from tests.support.canary import KEY as KEY
from tests.support.raw_client import RawClient

ALL_PROTOCOLS = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "anthropic_messages",
    "model_discovery",
)
T = TypeVar("T")


def candidate(url: str, **changes: Any) -> Candidate:
    """A candidate that speaks everything."""
    values: dict[str, Any] = {
        "route": "inference.local",
        "endpoint": parse_endpoint(url),
        "model": "real-model",
        "protocols": ALL_PROTOCOLS,
        "provider_type": "openai",
        "api_key": Secret(KEY),
    }
    return Candidate(**{**values, **changes})


class Door:
    """Serves a bundle on a tunnel port, on a port that begins with TLS, and on a plain port."""

    def __init__(
        self,
        *candidates: Candidate,
        limits: Limits = DEFAULT_LIMITS,
        bundle: Bundle | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock
        self._bundle = bundle if bundle is not None else make_bundle(candidates)
        self._limits = limits
        self._tunnel = socket.create_server(("127.0.0.1", 0))
        self._direct = socket.create_server(("127.0.0.1", 0))
        self._plain = socket.create_server(("127.0.0.1", 0))
        self.tunnel_address: tuple[str, int] = self._tunnel.getsockname()
        self.direct_address: tuple[str, int] = self._direct.getsockname()
        self.plain_address: tuple[str, int] = self._plain.getsockname()
        self.log = io.StringIO()
        self.ocsf = io.StringIO()
        self.authority = CertificateAuthority(time.time)
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="door")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the door's loop and wait for it."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(20)

    def __enter__(self) -> "Door":
        self._thread.start()
        self.call(self._open())
        return self

    async def _open(self) -> None:
        self.router_log = OperationLog(lines=self.log, ocsf=self.ocsf, wall_clock=time.time)
        self.router = Router(self._bundle, self.router_log, limits=self._limits, clock=self.clock)
        await self.router.serve_tunnel(self._tunnel, self.authority.tls_context)
        await self.router.serve_tls(self._direct, self.authority.tls_context)
        await self.router.serve_plain(self._plain)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.call(self._close())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(10)
            evidence.keep("log", self.log.getvalue())
            evidence.keep("event", self.ocsf.getvalue())

    async def _close(self) -> None:
        await self.router.close()
        # One turn of the loop lets closed transports say goodbye, so that no socket is left to the collector.
        await asyncio.sleep(0.01)
        self.leftover = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    def advance(self, seconds: float) -> None:
        """Let time pass, for a door with a clock of its own, after it has taken all that was sent to it."""
        clock = self.clock
        assert clock is not None

        async def pass_time() -> None:
            await _turns()
            clock.advance(seconds)
            self.router.enforce_deadlines()
            await _turns()

        self.call(pass_time())

    def plain(self) -> RawClient:
        """A client of the plain listener."""
        return RawClient(socket.create_connection(self.plain_address, 10))

    def connect(self) -> RawClient:
        """A client that has just reached the tunnel's port."""
        return RawClient(socket.create_connection(self.tunnel_address, 10))

    def direct(self) -> RawClient:
        """A client that has just reached the port that begins with TLS."""
        return RawClient(socket.create_connection(self.direct_address, 10))

    def tunnel(self) -> RawClient:
        """A client inside the tunnel, TLS done and verified."""
        client = self.connect()
        client.enter_tunnel(self.client_context())
        return client

    def client_context(self) -> ssl.SSLContext:
        """Trusts this door's authority and nothing else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.authority.pem.decode())
        return context

    def system_inference(self, *arguments: Any) -> BufferedResponse:
        """The in-process call, from here."""
        return self.call(self.router.system_inference(*arguments))

    def write_ca(self, directory: Path) -> Path:
        """The authority's certificate as a file."""
        return self.authority.write(directory, {}).authority

    def logged(self) -> str:
        """What the operator has been told so far."""

        async def flush() -> None:
            self.router_log.flush()

        self.call(flush())
        return self.log.getvalue()


async def _turns() -> None:
    """Enough turns of the loop to accept, read, decide and close: what is on a loopback socket is there at once."""
    for _ in range(12):
        await asyncio.sleep(0)
