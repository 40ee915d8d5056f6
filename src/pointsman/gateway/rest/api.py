"""The paths of the control API as one ASGI application, and its OpenAPI document."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest import endpoints
from pointsman.gateway.rest.admission import AdminRoute, PublicRoute
from pointsman.gateway.rest.ai_models import add_ai_models
from pointsman.gateway.rest.audit import add_audit
from pointsman.gateway.rest.boundary import Boundary
from pointsman.gateway.rest.budgets import add_budgets
from pointsman.gateway.rest.document import document
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.explained import ExplainEndpoint, ExplainRoute
from pointsman.gateway.rest.policies import add_policies
from pointsman.gateway.rest.prices import add_prices
from pointsman.gateway.rest.receipts import add_receipts
from pointsman.gateway.rest.refusals import NoSuchMethod, NoSuchPath, error_response
from pointsman.gateway.rest.runners import add_runners
from pointsman.gateway.rest.strict_request import BodyLimits
from pointsman.gateway.rest.usage import add_usage
from pointsman.gateway.rest.watching import add_watching
from pointsman.gateway.watching import Watching

DOCUMENT_PATH = f"{BASE}/openapi.json"


class DocumentEndpoint:
    """The OpenAPI document, made when it is first asked for: it costs much, and most gateways are never asked."""

    def __init__(self, api: FastAPI, version: str) -> None:
        self._api = api
        self._version = version
        self._made: dict[str, Any] | None = None

    async def get(self) -> Response:
        """The document. In a thread, since requests of the data listener share this one."""
        if self._made is None:
            self._made = await asyncio.to_thread(document, self._api, self._version)
        return JSONResponse(self._made)


def build_api(
    control: ControlPlane,
    version: str,
    say: Callable[[str], None],
    body_limits: BodyLimits | None = None,
    watching: Watching | None = None,
    is_worker: bool = False,
) -> FastAPI:
    """The application. Every path asks for the admin's token unless it says otherwise. `say` hears of our bugs.

    Without `watching` there are no `/stats`, `/metrics` and `/health/providers`. A worker has these and `/health`.
    """
    # No pages of documentation: they would load scripts from elsewhere. No redirects: they rebuild URLs.
    api = FastAPI(
        title="Pointsman control API", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    api.router.route_class = AdminRoute
    api.state.authenticator = control.authenticator
    api.state.body_limits = body_limits or BodyLimits()
    api.add_middleware(Boundary, say=say)
    api.add_exception_handler(HTTPException, _unmatched)
    gateway = endpoints.GatewayEndpoints(control, version)
    _add(api, "GET", "/health", gateway.health, operation_id="health", route_class_override=PublicRoute)
    if watching is not None:
        add_watching(api, watching)
    if not is_worker:
        _add_operations(api, control, gateway)
        _add(api, "GET", DOCUMENT_PATH, DocumentEndpoint(api, version).get, include_in_schema=False)
    api.state.written_out = frozenset(
        route.path for route in api.routes if isinstance(route, Route) and not route.param_convertors
    )
    return api


def _add_operations(api: FastAPI, control: ControlPlane, gateway: endpoints.GatewayEndpoints) -> None:
    _add(api, "GET", f"{BASE}/status", gateway.status, operation_id="status")
    _add_providers(api, endpoints.ProviderEndpoints(control))
    _add_routes(api, endpoints.RouteEndpoints(control))
    _add_sandbox_tokens(api, endpoints.SandboxTokenEndpoints(control))
    _add_keys(api, endpoints.KeyEndpoints(control))
    _add_accounts(api, endpoints.AccountEndpoints(control))
    add_runners(api, control)
    add_ai_models(api, control)
    add_audit(api, control)
    add_budgets(api, control)
    add_policies(api, control)
    add_prices(api, control)
    add_usage(api, control)
    add_receipts(api, control)
    explaining = ExplainEndpoint(control).explain
    _add(api, "POST", f"{BASE}/explain", explaining, operation_id="explain", route_class_override=ExplainRoute)


def _add(api: FastAPI, method: str, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
    api.router.add_api_route(path, endpoint, methods=[method], **options)


def _add_providers(api: FastAPI, providers: endpoints.ProviderEndpoints) -> None:
    many, one = f"{BASE}/providers", f"{BASE}/providers/{{name}}"
    _add(api, "GET", many, providers.list, operation_id="list_providers")
    _add(api, "POST", many, providers.create, operation_id="create_provider", status_code=201)
    _add(api, "GET", one, providers.get, operation_id="get_provider")
    _add(api, "PATCH", one, providers.update, operation_id="update_provider")
    _add(api, "DELETE", one, providers.delete, operation_id="delete_provider")


def _add_routes(api: FastAPI, routes: endpoints.RouteEndpoints) -> None:
    many, one = f"{BASE}/routes", f"{BASE}/routes/{{name}}"
    _add(api, "GET", many, routes.list, operation_id="list_routes")
    _add(api, "GET", one, routes.get, operation_id="get_route")
    _add(api, "PUT", one, routes.set, operation_id="set_route")
    _add(api, "PATCH", one, routes.update, operation_id="update_route")
    _add(api, "DELETE", one, routes.delete, operation_id="delete_route")


def _add_sandbox_tokens(api: FastAPI, tokens: endpoints.SandboxTokenEndpoints) -> None:
    many, one = f"{BASE}/sandbox-tokens", f"{BASE}/sandbox-tokens/{{name}}"
    _add(api, "GET", many, tokens.list, operation_id="list_sandbox_tokens")
    _add(api, "POST", many, tokens.create, operation_id="create_sandbox_token", status_code=201)
    _add(api, "DELETE", one, tokens.revoke, operation_id="revoke_sandbox_token")


def _add_keys(api: FastAPI, keys: endpoints.KeyEndpoints) -> None:
    many, one = f"{BASE}/keys", f"{BASE}/keys/{{name}}"
    _add(api, "GET", many, keys.list, operation_id="list_keys")
    _add(api, "POST", many, keys.create, operation_id="create_key", status_code=201)
    _add(api, "DELETE", one, keys.revoke, operation_id="revoke_key")


def _add_accounts(api: FastAPI, accounts: endpoints.AccountEndpoints) -> None:
    _add(api, "GET", f"{BASE}/accounts", accounts.list, operation_id="list_accounts")
    _add(api, "POST", f"{BASE}/accounts", accounts.create, operation_id="create_account", status_code=201)
    one = f"{BASE}/accounts/{{name}}"
    _add(api, "POST", f"{one}/halt", accounts.halt, operation_id="halt_account")
    _add(api, "POST", f"{one}/resume", accounts.resume, operation_id="resume_account")


async def _unmatched(request: Request, error: Exception) -> Response:
    """What the router refuses. The path is not repeated: anything may stand in it."""
    allowed = sorted(
        {
            method
            for route in request.app.routes
            if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
    )
    if not allowed:
        return error_response(NoSuchPath(f"nothing is there; see {DOCUMENT_PATH}"))
    if "GET" in allowed:
        allowed.append("HEAD")
    told = ", ".join(allowed)
    return error_response(NoSuchMethod(f"the path takes {told}"), headers={"allow": told})
