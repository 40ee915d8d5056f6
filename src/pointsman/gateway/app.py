"""Composes the gateway: the store, the control plane, and the three listeners. `data_composition` is behind data."""

import contextlib
import ipaddress
import secrets
import signal
import socket
import time
import uuid
from collections.abc import Callable

from pointsman.config.listen_address import Address
from pointsman.config.reload import Loaded
from pointsman.config.settings import DEFAULT_LISTEN, Settings
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.core.secret import Secret
from pointsman.core.version import VERSION
from pointsman.events.log_files import NO_EVENT_LOG, operation_log
from pointsman.events.operation_log import OperationLog
from pointsman.gateway.accounts import Accounts
from pointsman.gateway.admin_token import load_or_make_admin_token
from pointsman.gateway.ai_models import AiModels
from pointsman.gateway.audit import Audit
from pointsman.gateway.audit_head_file import AuditHeadFile
from pointsman.gateway.audit_layer import AuditLayer
from pointsman.gateway.auth import Authenticator
from pointsman.gateway.budgets import Budgets
from pointsman.gateway.bundles import Bundles
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.data_composition import data_side
from pointsman.gateway.direct_endpoint import DirectEndpoints
from pointsman.gateway.explain import Explain
from pointsman.gateway.file_layer import FileLayer
from pointsman.gateway.grpc.server import GrpcLimits, GrpcServer
from pointsman.gateway.keys import Keys
from pointsman.gateway.listeners import bind_sockets, ssl_context
from pointsman.gateway.live_configuration import LiveConfiguration
from pointsman.gateway.policies import Policies
from pointsman.gateway.prices import Prices
from pointsman.gateway.probe import Prober
from pointsman.gateway.providers import Providers
from pointsman.gateway.receipts import Receipts
from pointsman.gateway.rest.api import build_api
from pointsman.gateway.rest.server import ControlServer, ListenerLimits
from pointsman.gateway.routes import Routes
from pointsman.gateway.runner_side import gateway_bus, runner_hub, serve_runners
from pointsman.gateway.runners import Runners
from pointsman.gateway.sandbox_tokens import SandboxTokens
from pointsman.gateway.usage_report import UsageReport
from pointsman.proxy.background import running
from pointsman.proxy.memory import freeze_garbage
from pointsman.proxy.process import bound_address, open_files, ready_text, until_signalled
from pointsman.store.interface import Store
from pointsman.store.settings import StoreSettings
from pointsman.store.sql import open_store

_REVISIONS = b"bundle revision"
_TOKEN_BYTES = 32
_ID_BYTES = 16
DEFAULT_DATA_URL = f"http://{DEFAULT_LISTEN.data}/v1"
_CONTROL = ListenerLimits()
_FILES = GrpcLimits().connections + _CONTROL.connections + _CONTROL.lines + DEFAULT_LIMITS.connections + 256
"""As many clients as the listeners take, and our own: the database, upstreams that are verified, libraries."""


def make_control_plane(
    store: Store,
    admin_token: Secret,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.time,
    data_url: str = DEFAULT_DATA_URL,
    endpoints: DirectEndpoints | None = None,
) -> ControlPlane:
    """Every operation, on a store that is open. `data_url` is where sandboxes reach the data listener.

    Until `runners.look_at` no runner is connected. Without `endpoints` direct models have public addresses only.
    """
    runners = Runners(store, clock, _record_id, lambda: secrets.token_urlsafe(_TOKEN_BYTES), say)
    endpoints = endpoints or DirectEndpoints(ONLY_PUBLIC)
    return ControlPlane(
        store=store,
        providers=Providers(store, clock, lambda: str(uuid.uuid4()), say),
        routes=Routes(store, Prober(reach=endpoints.reach).verify, say, runners),
        sandbox_tokens=SandboxTokens(store, clock, lambda: secrets.token_urlsafe(_TOKEN_BYTES), say),
        keys=Keys(store, clock, lambda: secrets.token_urlsafe(_TOKEN_BYTES), say),
        runners=runners,
        ai_models=AiModels(store, clock, _record_id, say, runners, endpoints),
        accounts=Accounts(store, clock, say),
        audit=Audit(store),
        budgets=Budgets(store, clock, _record_id, say),
        policies=Policies(store, clock, say),
        prices=Prices(store, clock, say),
        usage=UsageReport(store, clock),
        receipts=Receipts(store),
        bundles=Bundles(store, store.derive(_REVISIONS), clock, say, data_url),
        explain=Explain(store, clock, runners),
        authenticator=Authenticator(store, admin_token, clock),
        clock=clock,
        started_at=clock(),
    )


def _record_id() -> str:
    return secrets.token_hex(_ID_BYTES)


async def run_gateway(loaded: Loaded) -> int:
    """The gateway, until SIGINT or SIGTERM; SIGHUP lets it read its configuration again.

    Returns the exit status. Raises CannotStart and ControlError.
    """
    settings = loaded.settings
    hung_up, _ = until_signalled(signal.SIGHUP)  # to the very end: it would kill a gateway that is stopping
    stop, restore = until_signalled(signal.SIGINT, signal.SIGTERM)
    async with contextlib.AsyncExitStack() as stack:
        log = stack.enter_context(operation_log(NO_EVENT_LOG))
        if (may_open := open_files(_FILES)) < _FILES:
            log.say(f"warning: {may_open} files may be open, and all listeners may need {_FILES}; raise ulimit -n")
        admin_token = load_or_make_admin_token(settings.data_dir)
        sockets = bind_sockets(settings.listen, with_data=settings.role != "api")
        stack.callback(sockets.close)
        stored = await open_store(StoreSettings(settings.database_url.reveal(), settings.key_file))
        stack.push_async_callback(stored.close)
        noted = await _noted_heads(stored, settings, log.say)
        store = FileLayer(AuditLayer(stored, time.time, noted.note), settings.records)
        configuration = LiveConfiguration(loaded, store, log.say)
        await configuration.check()
        may_be_away = loaded.source.allow_degraded
        bus = await stack.enter_async_context(gateway_bus(settings.nats_url, log.say, may_be_away=may_be_away))
        endpoints = DirectEndpoints(DirectReach(settings.direct_allowed_cidrs))
        data_url = settings.public_data_url or _data_url(settings, sockets.data)
        control = make_control_plane(store, admin_token, log.say, data_url=data_url, endpoints=endpoints)
        control.audit.look_at(noted.kept)
        listening = {}
        if settings.role != "data":
            listening["grpc"] = await _serve_grpc(settings, control, log, stack)
        hub = runner_hub(bus, control.runners, log.say)
        data = data_side(lambda: configuration.settings, store, control.healthy, log, hub, control.runners)
        side = await stack.enter_async_context(data)
        control.explain.look_at(side.listener, side.explained)
        control.budgets.count_by(side.budgets)
        if sockets.data is not None:
            await side.listener.serve(sockets.data, ssl_context(settings.tls))
            listening["data"] = bound_address(sockets.data)
        api = build_api(control, VERSION, log.say, watching=side.watched, is_worker=settings.role == "data")
        if settings.role != "data":
            serve_runners(api, hub, control.runners)
        listening["control"] = bound_address(sockets.control)
        control_server = ControlServer(api, sockets.control, ssl_context(settings.tls))
        await stack.enter_async_context(running(control_server.serve(), "control listener"))
        stack.push_async_callback(control_server.close)
        await stack.enter_async_context(running(configuration.follow(hung_up, side.refresh), "configuration"))
        freeze_garbage()
        log.say(ready_text(**{name: listening[name] for name in ("data", "control", "grpc") if name in listening}))
        await stop.wait()
        restore()
    return 0


async def _noted_heads(stored: Store, settings: Settings, say: Callable[[str], None]) -> AuditHeadFile:
    """Where the audit record's newest entry is noted besides the store."""
    noted = AuditHeadFile(settings.data_dir, say)
    async with stored.read() as reader:
        await noted.check(reader)
    return noted


async def _serve_grpc(
    settings: Settings, control: ControlPlane, log: OperationLog, stack: contextlib.AsyncExitStack
) -> tuple[str, int]:
    """Until the stack ends. Where it listens."""
    server = GrpcServer(control, log.say, open_to_admin=settings.auth.grpc == "none")
    stack.push_async_callback(server.close)
    return settings.listen.grpc.host, await server.start(settings.listen.grpc, settings.tls)


def _data_url(settings: Settings, listener: socket.socket | None) -> str:
    """Where a sandbox on this machine reaches the data listener, be it another process's."""
    address = settings.listen.data
    host, port = (address.host, address.port) if listener is None else bound_address(listener)
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"{'https' if settings.tls else 'http'}://{Address(host, port)}/v1"
