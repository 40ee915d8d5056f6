"""Every operation of the control API's document, by who may call it. One without a row here fails."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pointsman.core.data_key import PERMISSIONS
from tests.support.rest import BEARER, Answer, RunningApi
from tests.support.watched_api import watched_api

ADMIN, ANYONE = "the admin", "anyone"
WHO_MAY: dict[str, str] = {
    "health": ANYONE,
    "live_stats": ADMIN,
    "stats_history": ADMIN,
    "providers_health": ADMIN,
    "metrics": ADMIN,
    "status": ADMIN,
    "list_providers": ADMIN,
    "create_provider": ADMIN,
    "get_provider": ADMIN,
    "update_provider": ADMIN,
    "delete_provider": ADMIN,
    "list_routes": ADMIN,
    "get_route": ADMIN,
    "set_route": ADMIN,
    "update_route": ADMIN,
    "delete_route": ADMIN,
    "list_sandbox_tokens": ADMIN,
    "create_sandbox_token": ADMIN,
    "revoke_sandbox_token": ADMIN,
    "list_keys": ADMIN,
    "create_key": ADMIN,
    "revoke_key": ADMIN,
    "list_accounts": ADMIN,
    "create_account": ADMIN,
    "halt_account": ADMIN,
    "resume_account": ADMIN,
    "register_runner": "runners:manage",
    "list_runners": "runners:manage",
    "get_runner": "runners:manage",
    "rotate_runner_token": "runners:manage",
    "delete_runner": "runners:manage",
    "register_ai_model": "models:create",
    "create_ai_model": "models:create",
    "list_ai_models": "models:view",
    "get_ai_model": "models:view",
    "replace_ai_model": "models:edit",
    "delete_ai_model": "models:delete",
    "list_budgets": ADMIN,
    "create_budget": ADMIN,
    "get_budget": ADMIN,
    "update_budget": ADMIN,
    "delete_budget": ADMIN,
    "budget_status": ADMIN,
    "status_of_budget": ADMIN,
    "list_prices": ADMIN,
    "set_price": ADMIN,
    "delete_price": ADMIN,
    "list_price_changes": ADMIN,
    "list_usage": ADMIN,
    "sum_usage": ADMIN,
    "list_policies": ADMIN,
    "set_policy": ADMIN,
    "get_policy": ADMIN,
    "update_policy": ADMIN,
    "roll_back_policy": ADMIN,
    "list_audit": ADMIN,
    "verify_audit": ADMIN,
    "list_receipts": ADMIN,
    "get_receipt": ADMIN,
    "verify_receipts": ADMIN,
    "explain": ADMIN,
}
NOT_MINE = "a key is of one account, and that is not this one; leave x-pointsman-account out"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with watched_api(tmp_path_factory.mktemp("who")) as (api, _):
        assert api.post("/accounts", {"name": "theirs"}).status == 201
        yield api


def documented(api: RunningApi) -> dict[str, tuple[str, str]]:
    """Method and path by the operation's id."""
    paths: dict[str, Any] = api.get("/openapi.json").json["paths"]
    found = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    assert len(found) == sum(map(len, paths.values()))
    return found


def asked(api: RunningApi, operation: str, headers: dict[str, str]) -> Answer:
    method, path = documented(api)[operation]
    body: object = {} if method in ("POST", "PUT", "PATCH") else None
    return api.ask(method, re.sub(r"\{\w+\}", "nobody", path), body, headers=headers)


def test_the_table_is_of_every_operation_of_the_document(api: RunningApi) -> None:
    assert WHO_MAY.keys() == documented(api).keys()


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("operation", WHO_MAY)
def test_nobody_else_may(api: RunningApi, operation: str) -> None:
    needed = WHO_MAY[operation]
    others = api.key_bearer(*(each for each in PERMISSIONS if each != needed))
    sandbox = api.sandbox_bearer(f"box-{operation}".replace("_", "-"))
    if needed == ANYONE:
        assert {asked(api, operation, headers).status for headers in ({}, others, sandbox)} == {200}
        return
    unknown = {"authorization": f"Bearer pointsman-key-{'x' * 43}"}
    assert {asked(api, operation, headers).status for headers in ({}, unknown)} == {401}
    assert {asked(api, operation, headers).status for headers in (others, sandbox)} == {403}
    theirs = {**api.key_bearer(*PERMISSIONS, account="theirs"), "x-pointsman-account": "default"}
    refused = asked(api, operation, theirs)
    assert refused.status == 403
    assert needed == ADMIN or refused.error == NOT_MINE
    assert asked(api, operation, BEARER).status not in (401, 403)
    if needed != ADMIN:
        assert asked(api, operation, api.key_bearer(needed)).status not in (401, 403)
