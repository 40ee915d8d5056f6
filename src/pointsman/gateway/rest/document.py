"""The OpenAPI document: what FastAPI derives from the code, plus identity, account and errors of every path."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pointsman.core.account import ACCOUNT_FIELD, DEFAULT_ACCOUNT
from pointsman.gateway.rest.admission import NAME_SHAPE, KeyRoute, PublicRoute
from pointsman.gateway.rest.answers import ErrorAnswer, ErrorDetail

_DESCRIPTION = """Providers, routes, sandbox tokens, keys, budgets, prices, policies, usage, receipts, the audit
record, runners, models and accounts of one gateway.

Every path but `/health` takes the admin's token: `Authorization: Bearer TOKEN`. Those of runners and models take a key
of the data listener, too: of its own account, with the permission that the path names, and where the key names routes
for models with these names only. Bodies are JSON in UTF-8 of at most
1 MiB, a request to be explained 21 MiB; unknown fields, converted types and repeated keys are refused. Credentials go
in and never come out."""

HEALTH_PATH = "/health"
_ERRORS = {
    "400": "The request cannot be right, whatever is stored.",
    "401": "No token, or none that is valid.",
    "403": "A sandbox's token, or a key that may not do this, not here, not from there, or is of a halted account.",
    "404": "The record, or the account, does not exist.",
    "409": "It exists already, is in use, or the provider did not answer as it must.",
    "413": "The body has over 1 MiB; over 21 MiB where a request is to be explained.",
    "415": "The body does not say that it is JSON.",
    "408": "The body did not arrive in time.",
    "500": "Internal error.",
    "503": "The database cannot be reached.",
    "507": "The database has no room.",
}
_WITH_BODY = ("408", "413", "415", "507")
_REFERENCE = "#/components/schemas/"


def document(api: FastAPI, version: str) -> dict[str, Any]:
    """The document of the paths added so far."""
    made = get_openapi(
        title=api.title, version=version, description=_DESCRIPTION, routes=api.routes, openapi_version="3.1.0"
    )
    schemas = made["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["ErrorDetail"] = ErrorDetail.model_json_schema()
    schemas["ErrorAnswer"] = ErrorAnswer.model_json_schema(ref_template=_REFERENCE + "{model}")
    schemas["ErrorAnswer"].pop("$defs", None)
    made["components"]["securitySchemes"] = {
        "admin": {"type": "http", "scheme": "bearer"},
        "key": {"type": "http", "scheme": "bearer"},
    }
    made["components"]["parameters"] = {"account": _account_parameter()}
    made["components"]["responses"] = {f"E{code}": _error(text) for code, text in _ERRORS.items()}
    permissions = {
        (route.path, method.lower()): route.permission
        for route in api.routes
        if isinstance(route, KeyRoute)
        for method in route.methods or ()
    }
    open_paths = {route.path for route in api.routes if isinstance(route, PublicRoute)}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _complete(operation, path, is_open=path in open_paths)
            if (permission := permissions.get((path, method))) is not None:
                operation["security"].append({"key": []})
                operation["description"] += f" A key needs `{permission}`."
    return made


def _complete(operation: dict[str, Any], path: str, *, is_open: bool) -> None:
    responses = operation["responses"]
    operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
    responses.pop("422", None)
    if path == HEALTH_PATH:
        responses["503"] = {**responses["200"], "description": "Degraded: the database cannot be reached."}
    if is_open:
        return
    operation["security"] = [{"admin": []}]
    operation.setdefault("parameters", []).append({"$ref": "#/components/parameters/account"})
    for code in _ERRORS:
        if code not in _WITH_BODY or "requestBody" in operation:
            responses[code] = {"$ref": f"#/components/responses/E{code}"}


def _error(text: str) -> dict[str, Any]:
    schema = {"$ref": f"{_REFERENCE}ErrorAnswer"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _account_parameter() -> dict[str, Any]:
    return {
        "name": ACCOUNT_FIELD,
        "in": "header",
        "required": False,
        "description": "The account that is worked on.",
        "schema": {"type": "string", **NAME_SHAPE, "default": DEFAULT_ACCOUNT},
    }
