"""`openshell.inference.v1.Inference`: OpenShell's own words for routes, and bundles."""

from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import grpc.aio

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.control_errors import InvalidRequest, NotPermitted
from pointsman.core.route import DIRECT, MODEL, RESERVED_NAMES
from pointsman.gateway.bundles import ServedBundle
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.grpc.gate import caller
from pointsman.gateway.routes import RouteTarget
from pointsman.rpc.convert import endpoint_messages
from pointsman.rpc.gen import inference_pb2 as pb
from pointsman.rpc.gen import inference_pb2_grpc

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """Answers sandboxes, and clients that were made for OpenShell v0.0.31."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control
        self._messages: WeakKeyDictionary[ServedBundle, pb.GetInferenceBundleResponse] = WeakKeyDictionary()

    async def GetInferenceBundle(
        self, request: pb.GetInferenceBundleRequest, context: _Context
    ) -> pb.GetInferenceBundleResponse:
        """What the calling sandbox may call now."""
        token = caller().sandbox_token
        if token is None:
            raise NotPermitted("bundles are for sandboxes")
        bundle = await self._control.bundles.bundle(token)
        message = self._messages.get(bundle)
        if message is None:
            message = self._messages[bundle] = _bundle_message(bundle)
        return message

    async def SetClusterInference(
        self, request: pb.SetClusterInferenceRequest, context: _Context
    ) -> pb.SetClusterInferenceResponse:
        """Point `inference.local` or `sandbox-system` at a provider's model."""
        target = RouteTarget(
            _route_name(request.route_name), request.provider_name, request.model_id, request.timeout_secs
        )
        change = await self._control.routes.set(caller().account, target, verify=not request.no_verify)
        return pb.SetClusterInferenceResponse(
            provider_name=change.route.provider_name,
            model_id=change.route.model,
            version=change.route.version,
            route_name=change.route.name,
            validation_performed=change.verified,
            validated_endpoints=endpoint_messages(change.endpoints),
            timeout_secs=change.route.timeout_seconds,
        )

    async def GetClusterInference(
        self, request: pb.GetClusterInferenceRequest, context: _Context
    ) -> pb.GetClusterInferenceResponse:
        """Where one of the two leads."""
        route = await self._control.routes.get(caller().account, _route_name(request.route_name))
        led_to = await self._control.routes.led_to(route)
        is_direct = led_to.kind in (DIRECT, MODEL)
        return pb.GetClusterInferenceResponse(
            # For what has no provider's record, its kind and name: clients of OpenShell show it as it stands.
            provider_name=led_to.provider_name if is_direct else f"{led_to.kind}:{led_to.name}",
            model_id=led_to.model or led_to.name,
            version=route.version,
            route_name=route.name,
            timeout_secs=led_to.timeout_seconds,
        )


def _route_name(name: str) -> str:
    """The two names that these calls know. Raises InvalidRequest for another."""
    name = name.strip() or INFERENCE_LOCAL
    if name not in RESERVED_NAMES:
        raise InvalidRequest(f"route_name {name[:64]!r} is neither {' nor '.join(RESERVED_NAMES)}")
    return name


def _bundle_message(bundle: ServedBundle) -> pb.GetInferenceBundleResponse:
    return pb.GetInferenceBundleResponse(
        routes=[
            pb.ResolvedRoute(
                name=route.name,
                base_url=route.base_url,
                protocols=route.protocols,
                api_key=route.api_key.reveal(),
                model_id=route.model,
                provider_type=route.provider_type,
                timeout_secs=route.timeout_seconds,
            )
            for route in bundle.routes
        ],
        revision=bundle.revision,
        generated_at_ms=round(bundle.generated_at * 1000),
    )
