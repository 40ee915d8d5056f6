"""`openshell.v1.OpenShell`, as far as inference routing needs it: health and provider records."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.core.version import VERSION
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.gate import caller
from pointsman.rpc.convert import provider_draft, provider_message
from pointsman.rpc.gen import openshell_pb2 as pb
from pointsman.rpc.gen import openshell_pb2_grpc

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class OpenShellServicer(openshell_pb2_grpc.OpenShellServicer):
    """Answers what its clients ask of provider records. Values of credentials never come back."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def Health(self, request: pb.HealthRequest, context: _Context) -> pb.HealthResponse:
        """Healthy, or degraded while the store does not answer."""
        healthy = await self._control.healthy()
        return pb.HealthResponse(
            status=pb.SERVICE_STATUS_HEALTHY if healthy else pb.SERVICE_STATUS_DEGRADED, version=VERSION
        )

    async def CreateProvider(self, request: pb.CreateProviderRequest, context: _Context) -> pb.ProviderResponse:
        """A new record."""
        provider = await self._control.providers.create(caller().account, provider_draft(request.provider))
        return pb.ProviderResponse(provider=provider_message(provider))

    async def GetProvider(self, request: pb.GetProviderRequest, context: _Context) -> pb.ProviderResponse:
        """One record."""
        provider = await self._control.providers.get(caller().account, request.name.strip())
        return pb.ProviderResponse(provider=provider_message(provider))

    async def ListProviders(self, request: pb.ListProvidersRequest, context: _Context) -> pb.ListProvidersResponse:
        """A page of records by name."""
        page = await self._control.providers.page(caller().account, request.limit, request.offset)
        return pb.ListProvidersResponse(providers=[provider_message(each) for each in page.providers])

    async def UpdateProvider(self, request: pb.UpdateProviderRequest, context: _Context) -> pb.ProviderResponse:
        """Merge into a record."""
        provider = await self._control.providers.update(caller().account, provider_draft(request.provider))
        return pb.ProviderResponse(provider=provider_message(provider))

    async def DeleteProvider(self, request: pb.DeleteProviderRequest, context: _Context) -> pb.DeleteProviderResponse:
        """Delete a record, even one that routes use: what breaks is logged (its clients know no force)."""
        deletion = await self._control.providers.delete(caller().account, request.name.strip(), force=True)
        return pb.DeleteProviderResponse(deleted=deletion.deleted)
