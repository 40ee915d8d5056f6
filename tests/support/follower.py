"""A door whose routes are a scripted gateway's, asked when the test says so."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from pointsman.core.gateway_address import read_gateway_address
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.events.operation_log import OperationLog
from pointsman.sandbox.bundle_poller import BundlePoller, Schedule
from pointsman.sandbox.gateway_link import GatewayLink
from pointsman.sandbox.route_source import gateway_routes
from pointsman.testing import FakeClock
from tests.support.door import Door
from tests.support.raw_client import Answer, RawClient, post
from tests.support.scripted_gateway import ScriptedGateway
from tests.support.upstream import SOME_BODY, Upstream, UpstreamPeer

NO_FILES: Mapping[str, str] = {}


def token_file(directory: Path, token: str) -> Path:
    """A token where a sandbox reads it."""
    path = directory / "sandbox.token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    return path


class Follower:
    """A door and the line to its gateway. Nothing is asked until `poll`."""

    def __init__(
        self,
        gateway: ScriptedGateway,
        directory: Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: FakeClock | None = None,
        files: Mapping[str, str] = NO_FILES,
    ) -> None:
        self.token_file = token_file(directory, gateway.token)
        self._routes = gateway_routes(read_gateway_address(gateway.url, **files), str(self.token_file))
        self._limits = limits
        self.door = Door(limits=limits, clock=clock)

    def __enter__(self) -> "Follower":
        self.door.__enter__()
        self.door.call(self._open())
        return self

    async def _open(self) -> None:
        self._link = GatewayLink(self._routes, self._limits)
        log: OperationLog = self.door.router_log
        self._poller = BundlePoller(self._link.fetch, self.door.router.routes, log, Schedule(5.0, lambda: 0.0))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.door.call(self._link.close())
        finally:
            self.door.__exit__(kind, error, _)

    def poll(self) -> None:
        """Ask once."""
        self.door.call(self._poller.poll())

    def events(self) -> list[str]:
        """Kinds and reasons of what the operator has been told, in order, of the routes."""
        words = [line.split() for line in self.door.logged().splitlines() if " source=gateway " in line]
        reasons = [next((word[7:] for word in line if word.startswith("reason=")), "") for line in words]
        return [f"{line[1]} {reason}".strip() for line, reason in zip(words, reasons, strict=True)]

    def ask(self, serve: Callable[[], object] = lambda: None) -> Answer:
        """One request through the door; `serve` plays the upstream meanwhile."""
        with self.door.tunnel() as client:
            client.send(post(SOME_BODY))
            serve()
            return client.answer()

    def begin(self, upstream: Upstream) -> tuple[RawClient, UpstreamPeer, bytes | None]:
        """A client, the upstream that has read its request, and the key that came with it."""
        client = self.door.tunnel()
        client.send(post(SOME_BODY))
        peer = upstream.accept()
        return client, peer, peer.request().value(b"authorization")
