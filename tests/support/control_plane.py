"""The control plane in a thread of its own, on a real SQLite store and a real gRPC listener."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import uvloop

from pointsman.config.listen_address import Address
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.provider import ProviderDraft
from pointsman.core.secret import Secret
from pointsman.gateway.app import make_control_plane
from pointsman.gateway.audit_layer import AuditLayer
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.gateway.grpc.server import GrpcLimits, GrpcServer
from pointsman.gateway.routes import RouteTarget
from pointsman.rpc.gen import control_pb2_grpc, inference_pb2_grpc, openshell_pb2_grpc
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_sqlite import open_sqlite_ledger
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore, open_store
from tests.support import evidence
from tests.support.canary import KEY

GRPC_LIMITS = GrpcLimits()
ADMIN_TOKEN = "admin-" + "0" * 40
T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]
ADMIN: Metadata = (("authorization", f"Bearer {ADMIN_TOKEN}"),)


def draft(name: str = "mocked", **changes: Any) -> ProviderDraft:
    """A provider whose verification needs no network."""
    values: dict[str, Any] = {
        "name": name,
        "type": "openai",
        "credentials": {"OPENAI_API_KEY": Secret(KEY)},
        "config": {"OPENAI_BASE_URL": "mock://answers"},
    }
    return ProviderDraft(**{**values, **changes})


class RunningControlPlane:
    """Listens on a port of its own; `call` runs an operation on its loop."""

    def __init__(
        self,
        directory: Path,
        *,
        open_to_admin: bool = False,
        limits: GrpcLimits = GRPC_LIMITS,
        settings: StoreSettings | None = None,
        endpoints: DirectEndpoints | None = None,
    ) -> None:
        database = file_url(directory / "pointsman.db")
        self._directory = directory
        self._settings = settings or StoreSettings(database, directory / "credentials.key")
        self._endpoints = endpoints
        self._limits = limits
        self._open_to_admin = open_to_admin
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="control plane")
        self.lines: list[str] = []
        self._ahead = 0.0

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    @property
    def store(self) -> SqlStore:
        """For what would take an operation a thousand times."""
        return self._store

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on its loop and wait for it."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(30)

    def start(self) -> None:
        self._thread.start()
        self.call(self._open())

    async def _open(self) -> None:
        self._store = await open_store(self._settings)
        self._quotas = await open_sqlite_ledger(self._directory / "quota.db", time.time())
        self.control: ControlPlane = make_control_plane(
            AuditLayer(self._store, time.time),
            Secret(ADMIN_TOKEN),
            self.lines.append,
            lambda: time.time() + self._ahead,
            endpoints=self._endpoints,
        )
        self.budgets = SqlBudgetLedger(self._quotas.database, self.lines.append)
        self.control.budgets.count_by(self.budgets)
        self._server = GrpcServer(
            self.control, self.lines.append, open_to_admin=self._open_to_admin, limits=self._limits
        )
        self.port = await self._server.start(Address("127.0.0.1", 0), None)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.inference = inference_pb2_grpc.InferenceStub(self.channel)
        self.openshell = openshell_pb2_grpc.OpenShellStub(self.channel)
        self.commands = control_pb2_grpc.ControlStub(self.channel)

    def expire(self) -> None:
        """Let the time pass that a lifetime of one second has."""
        self._ahead += 2

    def stop(self) -> None:
        self.channel.close()
        try:
            self.call(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            evidence.keep("log", "\n".join(self.lines))

    async def _close(self) -> None:
        await self._server.close()
        await self.budgets.close()
        await self._quotas.close()
        await self._store.close()

    def provide(self, name: str = "mocked", account: str = DEFAULT_ACCOUNT, **changes: Any) -> None:
        """Create a provider."""
        self.call(self.control.providers.create(account, draft(name, **changes)))

    def point(self, route: str = "inference.local", provider: str = "mocked", model: str = "model-1") -> int:
        """Set a route without asking the upstream; its version."""
        target = RouteTarget(route, provider, model)
        return self.call(self.control.routes.set(DEFAULT_ACCOUNT, target, verify=False)).route.version

    def token(self, name: str = "sandbox", account: str = DEFAULT_ACCOUNT, route: str = "") -> Metadata:
        """A new sandbox token, as metadata of its calls."""
        _, secret = self.call(self.control.sandbox_tokens.create(account, name, route))
        return (("authorization", f"Bearer {secret.reveal()}"),)


@contextmanager
def control_plane(
    directory: Path,
    *,
    open_to_admin: bool = False,
    limits: GrpcLimits = GRPC_LIMITS,
    settings: StoreSettings | None = None,
    endpoints: DirectEndpoints | None = None,
) -> Iterator[RunningControlPlane]:
    """A control plane that listens; on SQLite in `directory` without `settings` of another database."""
    running = RunningControlPlane(
        directory, open_to_admin=open_to_admin, limits=limits, settings=settings, endpoints=endpoints
    )
    running.start()
    try:
        yield running
        assert not [line for line in running.lines if "internal error" in line]
    finally:
        running.stop()
