"""Providers, routes, sandbox tokens and accounts over HTTP, on the real operations and a real database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.core.provider import REDACTED
from pointsman.core.secret import Secret
from tests.support.canary import KEY, Finder
from tests.support.rest import OPENAI, RunningApi, rest_api

FINDER = Finder({"key": KEY})


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("records")) as api:
        yield api


def stored_key(api: RunningApi, name: str = "openai") -> dict[str, str]:
    provider = api.running.call(api.running.control.providers.get("default", name))
    return {key: value.reveal() for key, value in provider.credentials.items()}


def test_a_provider_is_created_read_changed_and_deleted(api: RunningApi) -> None:
    made = api.post("/providers", OPENAI)
    assert made.status == 201
    assert made.headers["location"] == "/api/v1/providers/openai"
    assert made.json["credentials"] == {"OPENAI_API_KEY": REDACTED}
    assert api.ask("GET", made.headers["location"]).json == made.json
    assert stored_key(api) == {"OPENAI_API_KEY": KEY}

    changed = api.patch("/providers/openai", {"config": {"OPENAI_BASE_URL": "mock://elsewhere", "A": "b"}})
    assert changed.json["config"] == {"OPENAI_BASE_URL": "mock://elsewhere", "A": "b"}
    assert stored_key(api) == {"OPENAI_API_KEY": KEY}
    changed = api.patch("/providers/openai", {"config": {"A": ""}, "credentials": {"OTHER": "value"}})
    assert changed.json["config"] == {"OPENAI_BASE_URL": "mock://elsewhere"}
    assert changed.json["credentials"] == {"OPENAI_API_KEY": REDACTED, "OTHER": REDACTED}

    assert api.delete("/providers/openai").json == {"deleted": True, "broken_routes": []}
    assert [api.get("/providers/openai").status, api.delete("/providers/openai").status] == [404, 404]
    assert api.get("/providers").json == {"providers": [], "total": 0}


def test_a_provider_without_a_name_gets_one_that_location_tells(api: RunningApi) -> None:
    made = api.post("/providers", {key: value for key, value in OPENAI.items() if key != "name"})
    assert made.headers["location"] == f"/api/v1/providers/{made.json['name']}"
    assert made.json["name"].startswith("openai-")


def test_a_name_is_taken_once(api: RunningApi) -> None:
    assert api.post("/providers", OPENAI).status == 201
    again = api.post("/providers", OPENAI)
    assert (again.status, again.json["error"]["code"]) == (409, "already_exists")


def test_times_are_of_this_moment_and_in_utc(api: RunningApi) -> None:
    made = datetime.fromisoformat(api.post("/providers", OPENAI).json["created_at"])
    assert abs((datetime.now(UTC) - made).total_seconds()) < 60


def test_pages_of_providers_hold_each_once(api: RunningApi) -> None:
    for number in range(5):
        api.running.provide(f"p{number}")
    pages = [api.get(f"/providers?limit=2&offset={offset}").json for offset in (0, 2, 4, 6)]
    assert [[each["name"] for each in page["providers"]] for page in pages] == [["p0", "p1"], ["p2", "p3"], ["p4"], []]
    assert {page["total"] for page in pages} == {5}


def test_a_page_has_100_records_unless_more_are_asked_for(api: RunningApi) -> None:
    for number in range(101):
        api.running.provide(f"p{number}")
    assert len(api.get("/providers").json["providers"]) == 100
    assert len(api.get("/providers?limit=1000").json["providers"]) == 101


def test_a_provider_in_use_is_deleted_by_force_alone(api: RunningApi) -> None:
    api.running.provide("used")
    api.running.point("inference.local", "used")
    refused = api.delete("/providers/used")
    assert refused.status == 409
    assert "inference.local" in refused.error
    assert "?force=true" in refused.error
    assert [api.delete(f"/providers/used?force={word}").status for word in ("1", "True", "yes", "", "on")] == [400] * 5
    assert api.delete("/providers/used?force=false").status == 409
    assert api.delete("/providers/used?force=true").json == {"deleted": True, "broken_routes": ["inference.local"]}
    route = api.get("/routes/inference.local")
    assert "used" in route.json["problem"]


@pytest.mark.parametrize("name", ["inference.local", "sandbox-system", "fast"])
def test_a_route_is_set_read_changed_and_deleted(api: RunningApi, name: str) -> None:
    api.running.provide()
    path = f"/routes/{name}"
    assert api.get(path).status == 404
    assert api.patch(path, {"model": "m"}).status == 404
    made = api.put(path, {"provider_name": "mocked", "model": "first"})
    expected: dict[str, Any] = {
        "name": name,
        "kind": "direct",
        "provider_name": "mocked",
        "model": "first",
        "timeout_seconds": 0,
        "candidates": [],
        "strategy": "",
        "fallback": "",
        "request_timeout_seconds": 0,
        "target": "",
        "via_gateway": False,
        "context": "",
        "from_file": False,
        "version": 1,
    }
    assert made.status == 200
    endpoints = made.json["validated_endpoints"]
    assert endpoints
    assert made.json == {**expected, "verified": True, "validated_endpoints": endpoints}
    changed = api.patch(path, {"timeout_seconds": 120, "verify": False})
    expected |= {"timeout_seconds": 120, "version": 2}
    assert changed.json == {**expected, "verified": False, "validated_endpoints": []}
    assert api.get(path).json == {**expected, "problem": None}
    assert api.get("/routes").json == {"routes": [{**expected, "problem": None}]}
    assert api.delete(path).json == {"deleted": True}
    assert [api.delete(path).status, api.get(path).status] == [404, 404]


def test_a_version_is_never_used_twice(api: RunningApi) -> None:
    api.running.provide()
    setting = {"provider_name": "mocked", "model": "m", "verify": False}
    assert api.put("/routes/r", setting).json["version"] == 1
    assert api.delete("/routes/r").status == 200
    assert api.put("/routes/r", setting).json["version"] == 2


def test_fifty_changes_at_once_have_fifty_versions(api: RunningApi) -> None:
    api.running.provide()
    api.running.point("r")
    with ThreadPoolExecutor(50) as pool:
        changes = [
            pool.submit(api.patch, "/routes/r", {"timeout_seconds": number, "verify": number % 2 == 0})
            for number in range(1, 51)
        ]
        answers = [each.result() for each in changes]
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["version"] for answer in answers} == set(range(2, 52))
    last = max(answers, key=lambda answer: int(answer.json["version"]))
    assert api.get("/routes/r").json["timeout_seconds"] == last.json["timeout_seconds"]


def test_a_route_to_nowhere_is_refused(api: RunningApi) -> None:
    refused = api.put("/routes/r", {"provider_name": "nobody", "model": "m", "verify": False})
    assert (refused.status, refused.json["error"]["code"]) == (409, "failed_precondition")
    assert "nobody" in refused.error


def test_a_change_of_nothing_is_refused(api: RunningApi) -> None:
    api.running.provide()
    api.running.point("r")
    assert api.patch("/routes/r", {}).status == 400
    assert api.get("/routes/r").json["version"] == 1


def test_a_provider_that_does_not_answer_changes_nothing(api: RunningApi) -> None:
    api.running.provide("dead", config={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    refused = api.put("/routes/r", {"provider_name": "dead", "model": "m"})
    assert refused.status == 409
    assert not FINDER.find(refused.body)
    assert api.get("/routes/r").status == 404
    assert api.put("/routes/r", {"provider_name": "dead", "model": "m", "verify": False}).status == 200


def test_a_sandbox_token_is_shown_once(api: RunningApi) -> None:
    api.running.provide()
    api.running.point("fast")
    made = api.post("/sandbox-tokens", {"name": "box", "route": "fast", "lifetime_seconds": 3600})
    assert made.status == 201
    assert made.headers["location"] == "/api/v1/sandbox-tokens/box"
    assert made.headers["cache-control"] == "no-store"
    token = made.json.pop("token")
    assert len(token) > 43
    lived = [datetime.fromisoformat(made.json[each]).timestamp() for each in ("created_at", "expires_at")]
    assert lived[1] - lived[0] == pytest.approx(3600)
    listed = api.get("/sandbox-tokens")
    assert [each["name"] for each in listed.json["sandbox_tokens"]] == ["box"]
    assert not Finder({"token": token}).find(listed.body + api.get("/status").body)
    assert not Secret(token).appears_in("\n".join([*api.running.lines, *api.records]))
    assert api.post("/sandbox-tokens", {"name": "box"}).status == 409


def test_a_revoked_token_stays_in_the_list(api: RunningApi) -> None:
    api.sandbox_bearer("box")
    assert api.get("/status").json["sandbox_tokens"] == 1
    assert api.delete("/sandbox-tokens/box").json == {"revoked": True}
    assert api.delete("/sandbox-tokens/box").status == 404
    assert api.get("/sandbox-tokens").json["sandbox_tokens"][0]["revoked_at"]
    assert api.get("/status").json["sandbox_tokens"] == 0


def test_a_token_for_a_route_that_is_not_there_is_refused(api: RunningApi) -> None:
    assert api.post("/sandbox-tokens", {"name": "box", "route": "missing"}).status == 404


def test_accounts_are_created_and_listed(api: RunningApi) -> None:
    assert [each["name"] for each in api.get("/accounts").json["accounts"]] == ["default"]
    assert api.post("/accounts", {"name": "team"}).status == 201
    assert api.post("/accounts", {"name": "team"}).status == 409
    assert [each["name"] for each in api.get("/accounts").json["accounts"]] == ["default", "team"]


def test_status_tells_what_an_operator_asks_first(api: RunningApi) -> None:
    api.running.provide()
    api.running.point()
    found = api.get("/status").json
    assert (found["store"], found["providers"], found["sandbox_tokens"]) == ("sqlite", 1, 0)
    assert [route["name"] for route in found["routes"]] == ["inference.local"]


def test_health_is_for_anyone(api: RunningApi) -> None:
    answer = api.ask("GET", "/health", headers={})
    assert (answer.status, answer.json) == (200, {"status": "ok", "version": "0.0.0"})
    assert api.ask("GET", "/health?cache=1", headers={}).status == 200


@pytest.mark.parametrize("path", ["/health", "/api/v1/status", "/api/v1/providers", "/api/v1/openapi.json"])
def test_head_is_get_without_its_body(api: RunningApi, path: str) -> None:
    head, get = api.ask("HEAD", path), api.ask("GET", path)
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.body))


@pytest.mark.guarantee("G3")
def test_no_answer_gives_a_credential_away(api: RunningApi) -> None:
    answers = [
        api.post("/providers", OPENAI),
        api.patch("/providers/openai", {"credentials": {"SECOND": KEY}}),
        api.put("/routes/inference.local", {"provider_name": "openai", "model": "m"}),
        api.patch("/routes/inference.local", {"model": "n"}),
        *(api.get(path) for path in ("/providers", "/providers/openai", "/routes", "/routes/inference.local")),
        *(api.get(path) for path in ("/status", "/accounts", "/sandbox-tokens", "/openapi.json")),
        api.post("/providers", OPENAI),
        api.delete("/providers/openai"),
        api.delete("/providers/openai?force=true"),
    ]
    assert [answer.status for answer in answers] == [201, *[200] * 11, 409, 409, 200]
    for answer in answers:
        assert not FINDER.find(answer.body + str(answer.headers).encode())
        assert set(credentials(answer.json)) <= {REDACTED}
    assert not FINDER.find("\n".join([*api.running.lines, *api.records]).encode())


def credentials(value: Any) -> Iterator[Any]:
    """Every value of whatever is called credentials, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from credentials(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "credentials" and all(isinstance(entry, str) for entry in each.values()):
                yield from each.values()
            else:
                yield from credentials(each)


def test_a_key_is_shown_once_and_revoked(api: RunningApi) -> None:
    api.running.provide()
    api.running.point("fast")
    made = api.post("/keys", {"name": "laptop", "routes": ["fast"], "lifetime_seconds": 3600})
    assert (made.status, made.headers["location"]) == (201, "/api/v1/keys/laptop")
    key = made.json["key"]
    assert api.running.call(api.running.control.authenticator.identify(key)).data_key
    listed = api.get("/keys")
    assert key.encode() not in listed.body
    assert [(each["name"], each["permissions"], each["routes"]) for each in listed.json["keys"]] == [
        ("laptop", ["inference"], ["fast"])
    ]
    assert api.post("/keys", {"name": "laptop"}).status == 409
    assert api.post("/keys", {"routes": ["missing"]}).status == 404
    assert api.post("/keys", {"permissions": ["admin"]}).status == 400
    assert api.get("/keys", headers={"authorization": f"Bearer {key}"}).status == 403
    assert api.delete("/keys/laptop").json == {"revoked": True}
    assert api.delete("/keys/laptop").status == 404
    assert api.get("/keys", headers={"authorization": f"Bearer {key}"}).status == 401
    assert api.post("/keys", {}).json["name"].startswith("key-")


def test_a_chain_is_set_changed_and_led_to(api: RunningApi) -> None:
    for name in ("a", "b", "local"):
        api.running.provide(name, config={"OPENAI_BASE_URL": f"mock://{name}", "MODEL": "own"})
    chain = {
        "candidates": [{"provider_name": "a"}, {"provider_name": "b", "model": "m"}],
        "strategy": "weighted",
        "fallback": "local",
        "request_timeout_seconds": 90,
    }
    made = api.put("/routes/fast", chain).json
    assert (made["kind"], made["verified"], len(made["validated_endpoints"])) == ("chain", True, 3)
    assert {key: made[key] for key in chain} == {
        **chain,
        "candidates": [{"provider_name": "a", "model": ""}, {"provider_name": "b", "model": "m"}],
    }
    changed = api.patch("/routes/fast", {"candidates": [{"provider_name": "b"}], "fallback": ""}).json
    assert (changed["candidates"], changed["fallback"], changed["strategy"]) == (
        [{"provider_name": "b", "model": ""}],
        "",
        "weighted",
    )
    assert api.put("/routes/inference.local", {"target": "fast"}).json["kind"] == "alias"
    assert api.get("/routes/inference.local").json["target"] == "fast"
    assert api.delete("/providers/b").status == 409
    wrongs: tuple[dict[str, Any], ...] = (
        {"strategy": "random", "candidates": [{"provider_name": "a"}]},
        {"candidates": []},
        {"candidates": [{"provider_name": "a", "key": "x"}]},
        {"target": "fast"},
        {},
    )
    for wrong in wrongs:
        assert api.put("/routes/other", {**wrong, "verify": False}).status == 400, wrong
    assert api.patch("/routes/fast", {"candidates": []}).status == 400
