"""Pointsman: a self-hosted inference router for sandboxed agents.

As a library, three names do the work (see examples/embed_router.py):

    routes = load_route_file("routes.yaml", os.environ)
    async with open_router(routes.bundle) as router:
        answer = await router.system_inference("openai_chat_completions", "POST", "/v1/chat/completions", (), body)

They are imported on first use, so that `import pointsman` stays cheap.
"""

from typing import TYPE_CHECKING, Any

from pointsman.core.version import VERSION as __version__

if TYPE_CHECKING:
    from pointsman.config.routes_file import load_route_file
    from pointsman.core.errors import NoCompatibleRoute, NotConfigured, RouterError, UpstreamError
    from pointsman.core.limits import Limits
    from pointsman.proxy.router import BufferedResponse, Router
    from pointsman.sandbox.app import open_router

_HOMES = {
    "BufferedResponse": "pointsman.proxy.router",
    "Limits": "pointsman.core.limits",
    "NoCompatibleRoute": "pointsman.core.errors",
    "NotConfigured": "pointsman.core.errors",
    "Router": "pointsman.proxy.router",
    "RouterError": "pointsman.core.errors",
    "UpstreamError": "pointsman.core.errors",
    "load_route_file": "pointsman.config.routes_file",
    "open_router": "pointsman.sandbox.app",
}

__all__ = [
    "BufferedResponse",
    "Limits",
    "NoCompatibleRoute",
    "NotConfigured",
    "Router",
    "RouterError",
    "UpstreamError",
    "__version__",
    "load_route_file",
    "open_router",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pointsman' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
