"""`pointsman gateway` as what `bench/rotation.py` changes: `--gateway bench.real_gateway:running`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import grpc
from bench.control_plane import Metadata, admin_of, gateway

from pointsman.rpc.gen import control_pb2, control_pb2_grpc, datamodel_pb2, openshell_pb2, openshell_pb2_grpc


class RunningGateway:
    """A gateway with one provider, whose record and route are changed."""

    def __init__(self, address: str, admin: Metadata) -> None:
        self.url = f"http://{address}"
        self._admin = admin
        self._channel = grpc.insecure_channel(address)
        self._openshell = openshell_pb2_grpc.OpenShellStub(self._channel)
        self._control = control_pb2_grpc.ControlStub(self._channel)
        self._exists = False
        request = control_pb2.CreateSandboxTokenRequest(name="bench")
        self.token = self._control.CreateSandboxToken(request, metadata=admin).token

    def change(self, base_url: str, key: str, model: str) -> None:
        """A key rotated in the provider's record, then the model of the route."""
        record = datamodel_pb2.Provider(
            name="rotated",
            type="openai",
            credentials={"OPENAI_API_KEY": key},
            config={"OPENAI_BASE_URL": base_url},
        )
        if self._exists:
            self._openshell.UpdateProvider(openshell_pb2.UpdateProviderRequest(provider=record), metadata=self._admin)
        else:
            self._openshell.CreateProvider(openshell_pb2.CreateProviderRequest(provider=record), metadata=self._admin)
        self._exists = True
        route = control_pb2.SetRouteRequest(
            name="inference.local", provider_name="rotated", model=model, no_verify=True
        )
        self._control.SetRoute(route, metadata=self._admin)

    def close(self) -> None:
        """Let the channel go."""
        self._channel.close()


@contextlib.contextmanager
def running(directory: Path) -> Iterator[RunningGateway]:
    """A gateway process on SQLite in this directory."""
    with gateway(str(directory / "gateway")) as (_, address):
        made = RunningGateway(address, admin_of(str(directory / "gateway")))
        try:
            yield made
        finally:
            made.close()
