"""Who may do what over HTTP: every method of every path, by every kind of caller."""

import re
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from pointsman.gateway.rest.admission import AdminRoute, PublicRoute
from pointsman.gateway.rest.api import build_api
from tests.support.control_plane import ADMIN_TOKEN
from tests.support.rest import BEARER, OPENAI, RunningApi, rest_api

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
HUGE_AND_MALFORMED = b"{" * (2 << 20)
STATUS = b"GET /api/v1/status HTTP/1.1\r\nhost: a\r\n%bconnection: close\r\n\r\n"

WRONG = {
    "no token": {},
    "an empty token": {"authorization": "Bearer "},
    "no scheme": {"authorization": ADMIN_TOKEN},
    "another scheme": {"authorization": f"Basic {ADMIN_TOKEN}"},
    "another token": {"authorization": "Bearer " + "x" * len(ADMIN_TOKEN)},
    "a token in capitals": {"authorization": f"Bearer {ADMIN_TOKEN.upper()}"},
    "a token with more behind it": {"authorization": f"Bearer {ADMIN_TOKEN} {ADMIN_TOKEN}"},
    "a token that is not ASCII": {"authorization": "Bearer é"},
    "a token in another header": {"x-api-key": ADMIN_TOKEN},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("identity")) as api:
        yield api


def filled(path: str) -> str:
    return re.sub(r"\{\w+(:path)?\}", "openai", path)


def paths(api: RunningApi) -> dict[str, set[str]]:
    """Methods by path, of the application itself."""
    found: dict[str, set[str]] = {}
    for route in api.api.routes:
        assert isinstance(route, APIRoute)
        found.setdefault(filled(route.path), set()).update(route.methods or ())
    return {path: methods | ({"HEAD"} if "GET" in methods else set()) for path, methods in found.items()}


def statuses(api: RunningApi, headers: dict[str, str], body: object = None) -> dict[int, list[str]]:
    """What each method of each path but /health answers, by status."""
    found: dict[int, list[str]] = {}
    for path, methods in paths(api).items():
        for method in sorted(methods) if path != "/health" else ():
            has_body = method in ("POST", "PUT", "PATCH")
            answer = api.ask(method, path, body if has_body else None, headers=headers)
            found.setdefault(answer.status, []).append(f"{method} {path}")
            if answer.status == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
    return found


def test_the_table_is_of_every_path_there_is(api: RunningApi) -> None:
    document = api.get("/openapi.json").json["paths"]
    documented = {filled(path): {each.upper() for each in document[path]} for path in document}
    assert {path: methods - {"HEAD"} for path, methods in paths(api).items()} == {
        **documented,
        "/api/v1/openapi.json": {"GET"},
    }
    assert len(documented) >= 9
    assert all(isinstance(route, AdminRoute) for route in api.api.routes)
    assert [route.path for route in api.api.routes if isinstance(route, PublicRoute)] == ["/health"]


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("who", WRONG)
def test_without_a_valid_token_every_method_of_every_path_is_refused(api: RunningApi, who: str) -> None:
    assert set(statuses(api, WRONG[who], {})) == {401}


def test_two_tokens_are_none(api: RunningApi) -> None:
    tokens = f"authorization: Bearer {ADMIN_TOKEN}\r\n" * 2
    assert api.raw(STATUS % tokens.encode()).startswith(b"HTTP/1.1 401 ")


@pytest.mark.guarantee("G1")
def test_a_sandboxes_token_opens_nothing(api: RunningApi) -> None:
    assert set(statuses(api, api.sandbox_bearer("nothing"), {})) == {403}


def test_a_sandboxes_token_opens_nothing_for_another_account_either(api: RunningApi) -> None:
    headers = {**api.sandbox_bearer("elsewhere"), "x-pointsman-account": "other"}
    assert set(statuses(api, headers, {})) == {403}


@pytest.mark.guarantee("G1")
def test_a_revoked_token_is_no_token(api: RunningApi) -> None:
    bearer = api.sandbox_bearer("revoked")
    assert api.delete("/sandbox-tokens/revoked").status == 200
    assert set(statuses(api, bearer, {})) == {401}


@pytest.mark.guarantee("G1")
def test_the_admin_is_let_in_everywhere(api: RunningApi) -> None:
    found = statuses(api, BEARER, {})
    assert not {401, 403, 405, 415, 500} & set(found), found


def test_the_scheme_may_be_written_in_any_case(api: RunningApi) -> None:
    assert api.get("/status", headers={"Authorization": f"bEARER {ADMIN_TOKEN}"}).status == 200


def test_an_unknown_account_is_not_found_anywhere(api: RunningApi) -> None:
    found = statuses(api, {**BEARER, "x-pointsman-account": "nobody"}, {})
    assert set(found) == {404}


@pytest.mark.parametrize("account", ["", " ", "../default", "a" * 254, "default,default", "é"])
def test_what_names_no_account_is_refused(api: RunningApi, account: str) -> None:
    assert api.get("/providers", headers={**BEARER, "x-pointsman-account": account}).status in (400, 404)


def test_an_account_named_twice_is_refused(api: RunningApi) -> None:
    fields = f"authorization: Bearer {ADMIN_TOKEN}\r\n" + "x-pointsman-account: default\r\n" * 2
    assert api.raw(STATUS % fields.encode()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.guarantee("G1")
def test_accounts_see_only_their_own(api: RunningApi) -> None:
    theirs = {**BEARER, "x-pointsman-account": "theirs"}
    assert api.post("/accounts", {"name": "theirs"}).status == 201
    assert api.post("/providers", {**OPENAI, "name": "hidden"}, headers=theirs).status == 201
    setting = {"provider_name": "hidden", "model": "m", "verify": False}
    assert api.put("/routes/inference.local", setting, headers=theirs).status == 200
    assert api.post("/sandbox-tokens", {"name": "theirs"}, headers=theirs).status == 201

    assert api.get("/providers/hidden").status == 404
    assert api.patch("/providers/hidden", {"config": {"A": "b"}}).status == 404
    assert api.delete("/providers/hidden?force=true").status == 404
    assert api.put("/routes/mine", setting).status == 409
    assert api.delete("/routes/inference.local").status == 404
    assert api.delete("/sandbox-tokens/theirs").status == 404
    assert b"hidden" not in api.get("/status").body + api.get("/providers").body + api.get("/routes").body
    assert api.get("/providers/hidden", headers=theirs).status == 200


@pytest.mark.guarantee("G1")
def test_a_caller_is_known_before_a_byte_of_the_body_is_read(api: RunningApi) -> None:
    head = f"POST /api/v1/providers HTTP/1.1\r\nhost: a\r\ncontent-length: {10**9}\r\nexpect: 100-continue\r\n\r\n"
    assert api.raw(head.encode(), until=b"}}").startswith(b"HTTP/1.1 401 ")
    assert api.post("/providers", HUGE_AND_MALFORMED, headers={}).status == 401


def test_other_methods_are_refused_and_those_that_exist_are_named(api: RunningApi) -> None:
    known = paths(api)
    for path in known:
        methods = known[path]
        for method in set(METHODS) - methods:
            answer = api.ask(method, path, headers={})
            assert answer.status == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == methods


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/providers/",
        "//api/v1/providers",
        "/api/v1//providers",
        "/API/v1/providers",
        "/api/v1/./providers",
        "/api/v1/x/../providers",
        "/api/v1/providers/a%2fb",
        "/health/../api/v1/providers",
        "/health;/api/v1/providers",
        "/health/",
        "/api/v1/providers%00",
        "/api%2fv1/routes/%2e%2e/providers/x",
        "/docs",
        "/redoc",
        "/openapi.json",
        "http://a/api/v1/providers",
    ],
)
def test_a_path_is_matched_as_it_stands(api: RunningApi, path: str) -> None:
    answer = api.ask("GET", path)
    assert answer.status == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "name", ["x-original-url", "x-rewrite-url", "x-http-method-override", "x-forwarded-prefix", "x-forwarded-host"]
)
def test_headers_that_name_another_path_or_method_mean_nothing(api: RunningApi, name: str) -> None:
    for value in ("/health", "GET", "/"):
        assert api.post("/providers", {}, headers={name: value}).status == 401


@pytest.mark.parametrize("host", ["health", "evil.example", "127.0.0.1/health?", "a@b", "", "localhost:1"])
def test_what_host_says_opens_nothing(api: RunningApi, host: str) -> None:
    assert api.get("/status", headers={"host": host}).status == 401


def test_a_path_that_is_added_is_closed(api: RunningApi) -> None:
    made = build_api(api.running.control, "0", api.records.append)

    @made.get("/api/v1/added")
    async def added() -> str:
        return "open"

    assert [type(route) for route in made.routes if isinstance(route, APIRoute) and "added" in route.path] == [
        AdminRoute
    ]
