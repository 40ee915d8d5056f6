"""Who may do what with runners and models: every operation, by every kind of caller."""

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from pointsman.core.data_key import INFERENCE, PERMISSIONS
from pointsman.gateway.rest.admission import KeyRoute
from tests.support.rest import BEARER, Answer, RunningApi, rest_api

MODEL = {"name": "Llama", "model_identifier": "llama3.2:3b", "api_endpoint": "http://localhost:11434/v1"}
DIRECT = {"name": "Far", "model_identifier": "big", "api_endpoint": "https://93.184.215.14/v1"}
OPERATIONS = {
    ("POST", "/runners/register"): "runners:manage",
    ("GET", "/runners"): "runners:manage",
    ("GET", "/runners/{runner_id}"): "runners:manage",
    ("DELETE", "/runners/{runner_id}"): "runners:manage",
    ("POST", "/runners/{runner_id}/token"): "runners:manage",
    ("POST", "/runners/{runner_id}/models"): "models:create",
    ("POST", "/ai-models"): "models:create",
    ("GET", "/ai-models"): "models:view",
    ("GET", "/ai-models/{model_id}"): "models:view",
    ("PUT", "/ai-models/{model_id}"): "models:edit",
    ("DELETE", "/ai-models/{model_id}"): "models:delete",
}
BODIES = {"/runners/register": {"name": "new"}, "/ai-models": DIRECT}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("permissions")) as api:
        assert api.post("/accounts", {"name": "theirs"}).status == 201
        yield api


@pytest.fixture
def ids(api: RunningApi) -> Iterator[dict[str, str]]:
    """A runner and a model of the default account."""
    runner = api.post("/runners/register", {"name": "mine"}).json["id"]
    model = api.post(f"/runners/{runner}/models", MODEL).json["id"]
    yield {"runner_id": runner, "model_id": model}
    for each in api.get("/runners").json["runners"]:
        assert api.delete(f"/runners/{each['id']}").status == 200
    for each in api.get("/ai-models").json["ai_models"]:
        assert api.delete(f"/ai-models/{each['id']}").status == 200


def asked(api: RunningApi, operation: tuple[str, str], ids: dict[str, str], headers: dict[str, str]) -> Answer:
    method, path = operation
    body = BODIES.get(path, MODEL) if method in ("POST", "PUT") and not path.endswith("/token") else None
    return api.ask(method, f"/api/v1{path.format(**ids)}", body, headers=headers)


def state(api: RunningApi) -> bytes:
    """All that the operations could change."""
    return api.get("/runners").body + api.get("/ai-models").body


def test_the_table_is_of_every_path_that_takes_keys(api: RunningApi) -> None:
    found = {
        (method, route.path.removeprefix("/api/v1")): route.permission
        for route in api.api.routes
        if isinstance(route, KeyRoute)
        for method in route.methods or ()
    }
    assert found == OPERATIONS
    names = [route.path for route in api.api.routes if isinstance(route, APIRoute)]
    assert {path for path in names if "runner" in path or "model" in path} == {f"/api/v1{path}" for _, path in found}


@pytest.mark.guarantee("M1")
def test_nobody_without_a_token_does_anything(api: RunningApi, ids: dict[str, str]) -> None:
    before = state(api)
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer pointsman-key-{'x' * 43}"},
    )
    for operation in OPERATIONS:
        assert {asked(api, operation, ids, headers).status for headers in wrong} == {401}, operation
    assert state(api) == before


@pytest.mark.guarantee("M1", "S3")
@pytest.mark.parametrize("permission", PERMISSIONS)
def test_a_key_does_what_its_permission_says_and_nothing_else(
    api: RunningApi, ids: dict[str, str], permission: str
) -> None:
    headers = api.key_bearer(permission)
    for operation, needed in OPERATIONS.items():
        if needed != permission:
            refused = asked(api, operation, ids, headers)
            assert refused.status == 403, operation
            assert f"no permission {needed}" in refused.error
    # Those that take something away come last.
    allowed = [operation for operation, needed in OPERATIONS.items() if needed == permission]
    for operation in sorted(allowed, key=lambda each: each[0] == "DELETE"):
        assert asked(api, operation, ids, headers).status in (200, 201), operation
    assert bool(allowed) is (permission != INFERENCE)


@pytest.mark.guarantee("M1", "S2")
def test_a_key_of_another_account_finds_nothing_and_changes_nothing(api: RunningApi, ids: dict[str, str]) -> None:
    headers = api.key_bearer(*PERMISSIONS, account="theirs")
    before = state(api)
    for operation in OPERATIONS:
        answer = asked(api, operation, ids, headers)
        if "{" in operation[1]:
            assert answer.status == 404, operation
        else:
            assert answer.status in (200, 201), operation
            assert b"mine" not in answer.body
            assert b"llama" not in answer.body
    assert state(api) == before


@pytest.mark.guarantee("M1")
@pytest.mark.parametrize("account", ["default", "nobody"])
def test_a_key_names_no_account_but_its_own(api: RunningApi, ids: dict[str, str], account: str) -> None:
    headers = {**api.key_bearer(*PERMISSIONS, account="theirs"), "x-pointsman-account": account}
    before = state(api)
    told = {asked(api, operation, ids, headers).error for operation in OPERATIONS}
    assert told == {"a key is of one account, and that is not this one; leave x-pointsman-account out"}
    assert state(api) == before
    assert api.get("/ai-models", headers={**headers, "x-pointsman-account": "theirs"}).status == 200


def test_a_key_that_is_revoked_or_a_sandboxes_token_does_nothing(api: RunningApi, ids: dict[str, str]) -> None:
    sandbox = api.sandbox_bearer("box")
    made = api.post("/keys", {"name": "soon-gone", "permissions": list(PERMISSIONS)}).json["key"]
    revoked = {"authorization": f"Bearer {made}"}
    assert api.get("/runners", headers=revoked).status == 200
    assert api.delete("/keys/soon-gone").status == 200
    for operation in OPERATIONS:
        assert asked(api, operation, ids, sandbox).status == 403, operation
        assert asked(api, operation, ids, revoked).status == 401, operation


def test_a_runners_own_token_opens_nothing_of_the_interface(api: RunningApi, ids: dict[str, str]) -> None:
    token = api.ask("POST", f"/api/v1/runners/{ids['runner_id']}/token").json["token"]
    for operation in OPERATIONS:
        assert asked(api, operation, ids, {"authorization": f"Bearer {token}"}).status == 401, operation


def test_a_key_with_every_permission_opens_nothing_else(api: RunningApi) -> None:
    headers = api.key_bearer(*PERMISSIONS)
    others = [r for r in api.api.routes if isinstance(r, APIRoute) and not isinstance(r, KeyRoute)]
    for route in others:
        for method in sorted(route.methods or ()) if route.path != "/health" else ():
            body: object = {} if method in ("POST", "PUT", "PATCH") else None
            assert api.ask(method, route.path.replace("{name}", "x"), body, headers=headers).status == 403, route.path


@pytest.mark.guarantee("M1")
def test_a_key_that_names_routes_has_sight_of_models_with_these_names_only(
    api: RunningApi, ids: dict[str, str]
) -> None:
    other = api.post("/ai-models", {**DIRECT, "alias": "seen"}).json
    headers = api.key_bearer(*PERMISSIONS, routes=["seen"])
    assert [each["alias"] for each in api.get("/ai-models", headers=headers).json["ai_models"]] == ["seen"]
    before = state(api)
    for method in ("GET", "PUT", "DELETE"):
        assert asked(api, (method, "/ai-models/{model_id}"), ids, headers).status == 404
    for path in ("/ai-models", f"/runners/{ids['runner_id']}/models"):
        for changes in ({}, {"alias": "another"}, {"model_identifier": "another"}):
            assert (
                api.post(
                    path,
                    {**MODEL, **DIRECT, **changes} if path == "/ai-models" else {**MODEL, **changes},
                    headers=headers,
                ).status
                == 403
            )
    assert api.put(f"/ai-models/{other['id']}", {**DIRECT, "alias": "renamed"}, headers=headers).status == 403
    assert state(api) == before
    assert api.delete(f"/ai-models/{other['id']}", headers=headers).status == 200


@pytest.mark.guarantee("M1")
def test_a_key_that_names_routes_does_not_learn_which_other_names_are_taken(
    api: RunningApi, ids: dict[str, str]
) -> None:
    taken = api.get(f"/ai-models/{ids['model_id']}").json["alias"]
    mine = api.post("/ai-models", {**DIRECT, "alias": "seen"}).json
    headers = api.key_bearer(*PERMISSIONS, routes=["seen"])
    for alias in (taken, "free"):
        other = {"alias": alias, "model_identifier": "another"}
        answers = [
            api.post("/ai-models", {**DIRECT, **other}, headers=headers),
            api.post(f"/runners/{ids['runner_id']}/models", {**MODEL, **other}, headers=headers),
            api.put(f"/ai-models/{mine['id']}", {**DIRECT, "alias": alias}, headers=headers),
        ]
        assert [each.status for each in answers] == [403] * 3
    gone = api.delete(f"/runners/{ids['runner_id']}", headers=headers)
    assert (gone.status, gone.json["unavailable_models"]) == (200, [])


def test_the_admin_does_everything_in_every_account(api: RunningApi, ids: dict[str, str]) -> None:
    for operation in sorted(OPERATIONS, key=lambda each: each[0] == "DELETE"):
        assert asked(api, operation, ids, BEARER).status in (200, 201), operation
