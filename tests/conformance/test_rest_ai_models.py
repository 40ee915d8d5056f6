"""AI models over HTTP, on the real operations and both databases."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from tests.support.databases import Database
from tests.support.rest import BEARER, RunningApi, rest_api
from tests.support.runner_presence import ScriptedPresence

MODEL = {"name": "Llama", "model_identifier": "llama3.2:3b", "api_endpoint": "http://localhost:11434/v1"}
DIRECT = {"name": "Far", "model_identifier": "big", "api_endpoint": "https://93.184.215.14/v1"}
SHAPE = {
    "id",
    "name",
    "alias",
    "endpoint_type",
    "runner_id",
    "api_endpoint",
    "model_identifier",
    "context",
    "available",
}


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[RunningApi]:
    with rest_api(tmp_path, settings=database.settings) as api:
        yield api


@pytest.fixture
def runner(api: RunningApi) -> str:
    return registered(api)


def registered(api: RunningApi, name: str = "laptop") -> str:
    runner_id: str = api.post("/runners/register", {"name": name}).json["id"]
    return runner_id


def models(api: RunningApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/ai-models").json["ai_models"]
    return found


def test_a_runners_model_is_registered_shown_and_deleted(api: RunningApi, runner: str) -> None:
    made = api.post(f"/runners/{runner}/models", MODEL)
    assert made.status == 201
    assert made.headers["location"] == f"/api/v1/ai-models/{made.json['id']}"
    assert made.json.keys() == SHAPE
    assert re.fullmatch(r"[0-9a-f]{32}", made.json.pop("id"))
    assert made.json | MODEL == {
        **MODEL,
        "alias": "llama3.2-3b",
        "endpoint_type": "runner",
        "runner_id": runner,
        "available": False,
        "context": "",
        "id": made.json["id"],
    }
    one = made.headers["location"]
    assert api.ask("GET", one).json == made.json
    assert models(api) == [made.json]
    assert any("model llama3.2-3b of default: registered" in line for line in api.running.lines)
    assert api.ask("DELETE", one).json == {"deleted": True}
    assert [api.ask("GET", one).status, api.ask("DELETE", one).status, api.ask("PUT", one, MODEL).status] == [404] * 3
    assert not models(api)


@pytest.mark.parametrize(
    "spelling",
    ["http://LOCALHOST:11434/v1", "HTTP://localhost:11434/v1/", "http://localhost:011434/v1"],
)
@pytest.mark.guarantee("S3")
def test_the_same_model_once_more_is_the_one_that_there_is(api: RunningApi, runner: str, spelling: str) -> None:
    made = api.post(f"/runners/{runner}/models", MODEL)
    again = api.post(
        f"/runners/{runner}/models", {**MODEL, "api_endpoint": spelling, "name": "Else", "alias": "another"}
    )
    assert again.status == 200
    assert "location" not in again.headers
    assert again.json == made.json
    assert len(models(api)) == 1


@pytest.mark.guarantee("S3")
def test_another_runner_address_or_identifier_is_another_model(api: RunningApi, runner: str) -> None:
    desk = registered(api, "desk")
    for where, changes in (
        (runner, {}),
        (runner, {"model_identifier": "llama3.2:1b"}),
        (runner, {"api_endpoint": "http://localhost:8080/v1"}),
        (runner, {"api_endpoint": "http://127.0.0.1:11434/v1"}),
        (desk, {}),
    ):
        assert api.post(f"/runners/{where}/models", {**MODEL, **changes}).status == 201
    assert [each["alias"] for each in models(api)] == [
        "llama3.2-1b",
        "llama3.2-3b",
        "llama3.2-3b-desk",
        "llama3.2-3b-laptop",
        "llama3.2-3b-laptop-2",
    ]


@pytest.mark.guarantee("S3")
def test_registrations_at_the_same_moment_make_one_model(api: RunningApi, runner: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: api.post(f"/runners/{runner}/models", MODEL), range(6)))
    assert sorted(each.status for each in answers) == [200] * 5 + [201]
    assert {each.json["id"] for each in answers} == {models(api)[0]["id"]}


def test_an_alias_collides_with_no_route_and_no_other_model(api: RunningApi, runner: str) -> None:
    api.running.provide()
    api.running.point("fast")
    for alias, status, reason in (
        ("fast", 409, "there is a route fast"),
        ("inference.local", 400, "is for sandboxes"),
        ("sandbox-system", 400, "is for sandboxes"),
        ("a b", 400, "alias"),
        ("mine", 201, ""),
    ):
        answer = api.post(f"/runners/{runner}/models", {**MODEL, "alias": alias})
        assert answer.status == status
        assert status == 201 or reason in answer.error
    for body in (DIRECT, {**DIRECT, "model_identifier": "other"}):
        assert api.post("/ai-models", {**body, "alias": "mine"}).status == 409
    assert [each["alias"] for each in models(api)] == ["mine"]
    # Nor is one made that does: of a route's name the default is another.
    assert api.post("/ai-models", {**DIRECT, "model_identifier": "fast"}).json["alias"] == "fast-2"
    assert (
        api.post("/ai-models", {**DIRECT, "model_identifier": "inference.local"}).json["alias"] == "inference.local-2"
    )


def test_a_route_does_not_take_a_models_name(api: RunningApi, runner: str) -> None:
    api.running.provide()
    api.post(f"/runners/{runner}/models", MODEL)
    setting = {"provider_name": "mocked", "model": "m", "verify": False}
    refused = api.put("/routes/llama3.2-3b", setting)
    assert (refused.status, "alias of a registered model" in refused.error) == (409, True)
    assert api.put("/routes/free", setting).status == 200


@pytest.mark.limit("runner.models")
@pytest.mark.guarantee("S7")
def test_a_runner_has_at_most_64_models(api: RunningApi, runner: str) -> None:
    most = DEFAULT_RUNNER_LIMITS.models
    assert most == 64
    for number in range(most):
        assert api.post(f"/runners/{runner}/models", {**MODEL, "model_identifier": f"m{number}"}).status == 201
    refused = api.post(f"/runners/{runner}/models", {**MODEL, "model_identifier": "one more"})
    assert (refused.status, "64 models" in refused.error) == (400, True)
    assert api.post(f"/runners/{runner}/models", {**MODEL, "model_identifier": "m0"}).status == 200
    assert api.post(f"/runners/{registered(api, 'desk')}/models", MODEL).status == 201
    assert api.delete(f"/ai-models/{models(api)[1]['id']}").status == 200
    assert api.post(f"/runners/{runner}/models", {**MODEL, "model_identifier": "one more"}).status == 201


def test_a_model_is_available_while_its_runner_is_connected(api: RunningApi, runner: str) -> None:
    scripted = ScriptedPresence(api.running.control.store)
    api.running.control.runners.look_at(scripted, scripted)
    made = api.post(f"/runners/{runner}/models", MODEL).json
    desk = api.post(f"/runners/{registered(api, 'desk')}/models", MODEL).json
    scripted.there.add(runner)
    assert {each["alias"]: each["available"] for each in models(api)} == {made["alias"]: True, desk["alias"]: False}
    assert api.get(f"/ai-models/{made['id']}").json["available"]
    assert api.post(f"/runners/{runner}/models", MODEL).json["available"]
    scripted.there.clear()
    assert not api.get(f"/ai-models/{made['id']}").json["available"]


def test_a_model_is_changed_but_not_whose_it_is(api: RunningApi, runner: str) -> None:
    made = api.post(f"/runners/{runner}/models", MODEL).json
    other = api.post(f"/runners/{runner}/models", {**MODEL, "model_identifier": "other"}).json
    change = {"name": "N", "model_identifier": "m", "api_endpoint": "http://LOCALHOST:1/v1/", "alias": "a"}
    changed = api.put(f"/ai-models/{made['id']}", change)
    assert changed.json == {**made, **change, "api_endpoint": "http://localhost:1/v1"}
    without = api.put(f"/ai-models/{made['id']}", MODEL)
    assert without.json == {**made, "alias": "a"}
    taken = api.put(f"/ai-models/{other['id']}", MODEL)
    assert (taken.status, "under another alias" in taken.error) == (409, True)
    assert api.put(f"/ai-models/{other['id']}", {**MODEL, "model_identifier": "x", "alias": "a"}).status == 409
    assert api.put(f"/ai-models/{other['id']}", {**MODEL, "runner_id": runner}).status == 400
    assert api.get(f"/ai-models/{other['id']}").json == other
    api.delete(f"/runners/{runner}")
    assert api.put(f"/ai-models/{made['id']}", MODEL).status == 409
    assert any("model a of default: changed, was llama3.2-3b" in line for line in api.running.lines)


@pytest.mark.guarantee("S2")
def test_models_are_their_accounts_own(api: RunningApi, runner: str) -> None:
    theirs = {**BEARER, "x-pointsman-account": "theirs"}
    assert api.post("/accounts", {"name": "theirs"}).status == 201
    made = api.post(f"/runners/{runner}/models", MODEL).json["id"]
    assert api.post(f"/runners/{runner}/models", MODEL, headers=theirs).status == 404
    assert api.get("/ai-models", headers=theirs).json == {"ai_models": [], "total": 0}
    assert api.get(f"/ai-models/{made}", headers=theirs).status == 404
    assert api.put(f"/ai-models/{made}", MODEL, headers=theirs).status == 404
    assert api.delete(f"/ai-models/{made}", headers=theirs).status == 404
    assert api.post("/ai-models", {**DIRECT, "alias": "llama3.2-3b"}, headers=theirs).status == 201
    assert len(models(api)) == 1


def test_pages_of_models_hold_each_once(api: RunningApi) -> None:
    for number in range(5):
        assert api.post("/ai-models", {**DIRECT, "alias": f"m{number}"}).status == 201
    pages = [api.get(f"/ai-models?limit=2&offset={offset}").json for offset in (0, 2, 4, 6)]
    assert [[each["alias"] for each in page["ai_models"]] for page in pages] == [["m0", "m1"], ["m2", "m3"], ["m4"], []]
    assert {page["total"] for page in pages} == {5}
    assert [api.get(f"/ai-models?limit={limit}").status for limit in (0, 1, 1000, 1001)] == [400, 200, 200, 400]
