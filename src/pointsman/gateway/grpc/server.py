"""The gRPC listener."""

from collections.abc import Callable

import grpc.aio

from pointsman.config.listen_address import Address
from pointsman.config.tls_files import Tls
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.control import ControlServicer
from pointsman.gateway.grpc.gate import Gate
from pointsman.gateway.grpc.inference import InferenceServicer
from pointsman.gateway.grpc.openshell import OpenShellServicer
from pointsman.gateway.listeners import GRPC_OPTIONS, bind_grpc
from pointsman.rpc.gen import control_pb2_grpc, inference_pb2_grpc, openshell_pb2_grpc

LARGEST_MESSAGE_BYTES = 4 * 1024 * 1024
"""gRPC's own default; a provider record at all of its limits has a fifth of it, in ASCII."""
MOST_CALLS = 4096
"""At once; beyond it a call is answered RESOURCE_EXHAUSTED."""
_STOP_SECONDS = 1.0


class GrpcServer:
    """Serves every service of `proto/` until it is stopped."""

    def __init__(self, control: ControlPlane, say: Callable[[str], None], *, open_to_admin: bool) -> None:
        self._server = grpc.aio.server(
            interceptors=[Gate(control.authenticator, say, open_to_admin=open_to_admin)],
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[*GRPC_OPTIONS, ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES)],
        )
        inference_pb2_grpc.add_InferenceServicer_to_server(InferenceServicer(control), self._server)
        openshell_pb2_grpc.add_OpenShellServicer_to_server(OpenShellServicer(control), self._server)
        control_pb2_grpc.add_ControlServicer_to_server(ControlServicer(control), self._server)

    async def start(self, address: Address, tls: Tls | None) -> int:
        """Listen; the port that it got. Raises CannotStart."""
        port = bind_grpc(self._server, address, tls)
        await self._server.start()
        return port

    async def close(self) -> None:
        """Stop listening, and give calls in progress a second."""
        await self._server.stop(_STOP_SECONDS)
