"""Pointsman: a self-hosted inference router for sandboxed agents.

As a library, a few names do the work (see examples/embed_router.py):

    routes = load_route_file("routes.yaml", os.environ)
    async with open_router(routes.bundle) as router:
        answer = await router.system_inference("openai_chat_completions", "POST", "/v1/chat/completions", (), body)

or, with the routes of a gateway, which it follows:

    routes = gateway_routes(read_gateway_address("http://127.0.0.1:8782"), "sandbox.token")
    async with open_gateway_router(routes) as router: ...

They are imported on first use, so that `import pointsman` stays cheap.
"""

from typing import TYPE_CHECKING, Any

from pointsman.core.version import VERSION as __version__

if TYPE_CHECKING:
    from pointsman.config.routes_file import load_route_file
    from pointsman.core.errors import NoCompatibleRoute, NotConfigured, RouterError, UpstreamError
    from pointsman.core.gateway_address import GatewayFileError, read_gateway_address
    from pointsman.core.limits import Limits
    from pointsman.data_plane import open_router
    from pointsman.proxy.router import BufferedResponse, Router
    from pointsman.sandbox.gateway_router import open_gateway_router
    from pointsman.sandbox.route_source import gateway_routes

_HOMES = {
    "BufferedResponse": "pointsman.proxy.router",
    "GatewayFileError": "pointsman.core.gateway_address",
    "Limits": "pointsman.core.limits",
    "NoCompatibleRoute": "pointsman.core.errors",
    "NotConfigured": "pointsman.core.errors",
    "Router": "pointsman.proxy.router",
    "RouterError": "pointsman.core.errors",
    "UpstreamError": "pointsman.core.errors",
    "gateway_routes": "pointsman.sandbox.route_source",
    "load_route_file": "pointsman.config.routes_file",
    "open_gateway_router": "pointsman.sandbox.gateway_router",
    "open_router": "pointsman.data_plane",
    "read_gateway_address": "pointsman.core.gateway_address",
}

__all__ = [
    "BufferedResponse",
    "GatewayFileError",
    "Limits",
    "NoCompatibleRoute",
    "NotConfigured",
    "Router",
    "RouterError",
    "UpstreamError",
    "__version__",
    "gateway_routes",
    "load_route_file",
    "open_gateway_router",
    "open_router",
    "read_gateway_address",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pointsman' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
