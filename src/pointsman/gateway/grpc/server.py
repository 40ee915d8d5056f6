"""The gRPC listener."""

from collections.abc import Callable
from dataclasses import dataclass

import grpc.aio

from pointsman.config.listen_address import Address
from pointsman.config.tls_files import Tls
from pointsman.core.limits import MIB
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.audit import AuditServicer
from pointsman.gateway.grpc.budgets import BudgetsServicer
from pointsman.gateway.grpc.control import ControlServicer
from pointsman.gateway.grpc.gate import Gate
from pointsman.gateway.grpc.inference import InferenceServicer
from pointsman.gateway.grpc.openshell import OpenShellServicer
from pointsman.gateway.grpc.policies import PoliciesServicer
from pointsman.gateway.grpc.receipts import ReceiptsServicer
from pointsman.gateway.grpc.usage import PricesServicer, UsageServicer
from pointsman.gateway.listeners import GRPC_OPTIONS, bind_grpc
from pointsman.rpc.gen import (
    audit_pb2_grpc,
    budgets_pb2_grpc,
    control_pb2_grpc,
    inference_pb2_grpc,
    openshell_pb2_grpc,
    policies_pb2_grpc,
    receipts_pb2_grpc,
    usage_pb2_grpc,
)

_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Bounds of the gRPC listener; the comment behind each names what happens beyond it."""

    connections: int = 4096  # at once: a new one is closed. Four times the sandboxes that a gateway is built for
    handshake_seconds: float = 10.0  # for TLS and HTTP/2's first frames, together: close
    idle_seconds: float = 300.0  # without a call: close, and clients connect anew by themselves
    calls_of_one_connection: int = 100  # at once: the client waits. A sandbox has one
    calls: int = 4096  # at once, of all: RESOURCE_EXHAUSTED
    message_bytes: int = 11 * MIB  # a request to be explained has a body of up to 10 MiB, and one more is to be told

    def options(self) -> list[tuple[str, int]]:
        """The same in gRPC's words."""
        return [
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.server_handshake_timeout_ms", round(self.handshake_seconds * 1000)),
            ("grpc.max_connection_idle_ms", round(self.idle_seconds * 1000)),
            ("grpc.max_concurrent_streams", self.calls_of_one_connection),
            ("grpc.max_receive_message_length", self.message_bytes),
        ]


class GrpcServer:
    """Serves every service of `proto/` until it is stopped."""

    def __init__(
        self,
        control: ControlPlane,
        say: Callable[[str], None],
        *,
        open_to_admin: bool,
        limits: GrpcLimits = GrpcLimits(),
    ) -> None:
        self._server = grpc.aio.server(
            interceptors=[Gate(control.authenticator, say, open_to_admin=open_to_admin)],
            maximum_concurrent_rpcs=limits.calls,
            options=[*GRPC_OPTIONS, *limits.options()],
        )
        inference_pb2_grpc.add_InferenceServicer_to_server(InferenceServicer(control), self._server)
        openshell_pb2_grpc.add_OpenShellServicer_to_server(OpenShellServicer(control), self._server)
        control_pb2_grpc.add_ControlServicer_to_server(ControlServicer(control), self._server)
        audit_pb2_grpc.add_AuditServicer_to_server(AuditServicer(control), self._server)
        budgets_pb2_grpc.add_BudgetsServicer_to_server(BudgetsServicer(control.budgets), self._server)
        policies_pb2_grpc.add_PoliciesServicer_to_server(PoliciesServicer(control), self._server)
        usage_pb2_grpc.add_PricesServicer_to_server(PricesServicer(control.prices), self._server)
        usage_pb2_grpc.add_UsageServicer_to_server(UsageServicer(control.usage), self._server)
        receipts_pb2_grpc.add_ReceiptsServicer_to_server(ReceiptsServicer(control.receipts), self._server)

    async def start(self, address: Address, tls: Tls | None) -> int:
        """Listen; the port that it got. Raises CannotStart."""
        port = bind_grpc(self._server, address, tls)
        await self._server.start()
        return port

    async def close(self) -> None:
        """Stop listening, and give calls in progress a second."""
        await self._server.stop(_STOP_SECONDS)
