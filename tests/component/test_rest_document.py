"""The OpenAPI document: valid, and true of what the API really takes and answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from pointsman.core.provider import NAME_PATTERN
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.core.receipt import Receipt
from pointsman.gateway.provider_health import Target
from pointsman.proxy.live_quotas import LiveQuota
from tests.support.chain_requests import MIDNIGHT
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.rest import BEARER, OPENAI, RunningApi
from tests.support.watched_api import watched_api

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WITHOUT_BODY = ("/token", "/halt", "/resume")
NAMES = st.sampled_from(["mocked", "inference.local", "a", "openai", "no-such"]) | st.text(max_size=20)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with watched_api(tmp_path_factory.mktemp("document")) as (api, watched), DataDoor() as data:
        api.running.control.explain.look_at(data.listener)
        day = Day("2026-12-01", "2026-12-02", MIDNIGHT, MIDNIGHT + 86400)
        watched.rows.append(LiveQuota(QuotaKey("default", "mocked"), Quota(2), Counters(1), day, MIDNIGHT + 3600))
        watched.targets += [Target("mocked", candidate("mock://a")), Target("nowhere", None)]
        api.running.provide()
        api.running.point()
        yield api


@pytest.fixture(scope="module")
def document(api: RunningApi) -> dict[str, Any]:
    answer = api.get("/openapi.json")
    assert answer.status == 200
    made: dict[str, Any] = answer.json
    return made


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def resolved(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        found: Any = document
        for step in value["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        value = found
    return value


def test_it_is_a_valid_openapi_document(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document).validate()


def test_every_operation_says_who_may_and_how_it_fails(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["description"], path
        if path == "/health":
            assert "security" not in operation
            continue
        takes_keys = path.startswith(("/api/v1/runners", "/api/v1/ai-models"))
        assert operation["security"] == [{"admin": []}, *([{"key": []}] if takes_keys else [])]
        assert (" A key needs `" in operation["description"]) is takes_keys
        assert {"400", "401", "403", "404", "500", "503"} <= set(operation["responses"]), path
        assert "422" not in operation["responses"]
        assert ("requestBody" in operation) is (method in ("POST", "PUT", "PATCH") and not path.endswith(WITHOUT_BODY))
        assert ("415" in operation["responses"]) is ("requestBody" in operation)
    assert "ValidationError" not in json.dumps(document)


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))


def test_nothing_that_is_asked_for_is_left_open(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        if "requestBody" in operation:
            shape = resolved(document, operation["requestBody"]["content"]["application/json"]["schema"])
            assert shape["additionalProperties"] is False, path


def test_what_a_name_may_be_stands_at_every_name_that_is_asked_for(document: dict[str, Any]) -> None:
    asked = [
        resolved(document, parameter).get("schema", {})
        for _, path, operation in operations(document)
        for parameter in operation.get("parameters", ())
        if parameter.get("name") == "name" and "/prices/" not in path
    ]
    schemas = document["components"]["schemas"]
    asked += [schemas[each]["properties"]["name"] for each in ("NewAccount", "NewBudget", "NewSandboxToken")]
    asked.append(document["components"]["parameters"]["account"]["schema"])
    assert len(asked) > 10
    assert {(each["pattern"], each["minLength"], each["maxLength"]) for each in asked} == {(NAME_PATTERN, 1, 253)}


class Checker:
    """Holds answers against the document."""

    def __init__(self, api: RunningApi, document: dict[str, Any]) -> None:
        self._api = api
        self._document = document

    def check(self, method: str, path: str, names: dict[str, str], body: Any = None) -> int:
        """Ask, and compare what comes with what the document promises; the status."""
        url = re.sub(r"\{\w+\}", quote(names.get("name", ""), safe=""), path)
        raw = None if body is None else json.dumps(body).encode()
        answer = self._api.ask(method, url, raw)
        if "{" in path and not names["name"]:
            return answer.status  # another path
        assert answer.status < 500, (method, url, raw)
        operation = self._document["paths"][path][method.lower()]
        if answer.status == 404 and "/" in names.get("name", ""):
            return 404
        promised = resolved(self._document, operation["responses"][str(answer.status)])
        [(media_type, content)] = promised["content"].items()
        assert answer.headers.get_content_type() == media_type
        if media_type != "application/json":
            assert content["schema"] == {"type": "string"}
            return answer.status
        schema = content["schema"]
        Draft202012Validator({**schema, "components": self._document["components"]}).validate(answer.json)
        return answer.status


RIGHT: dict[str, Any] = {
    "create_provider": OPENAI,
    "update_provider": {"config": {"A": "b"}},
    "set_route": {"provider_name": "mocked", "model": "m", "verify": False},
    "update_route": {"timeout_seconds": 7, "verify": False},
    "create_sandbox_token": {"name": "box"},
    "create_key": {"name": "laptop"},
    "create_account": {"name": "team"},
    "register_runner": {"name": "laptop"},
    "register_ai_model": {"name": "M", "model_identifier": "m", "api_endpoint": "http://localhost:1/v1"},
    "create_ai_model": {"name": "F", "model_identifier": "f", "api_endpoint": "https://93.184.215.14/v1"},
    "replace_ai_model": {"name": "N", "model_identifier": "n", "api_endpoint": "http://localhost:2/v1"},
    "create_budget": {"name": "all", "scope": "account", "unit": "money", "amount": "0.5", "window": "month"},
    "update_budget": {"amount": "50", "soft": True},
    "set_policy": {"rules": [{"id": "no-shell", "effect": "block", "denied_tools": ["shell*"]}]},
    "update_policy": {"state": "enforced"},
    "roll_back_policy": {"version": 1},
    "set_price": {"provider": "mocked", "input": "0.15", "output": "0.6"},
    "explain": {"model": "inference.local", "header_names": ["accept"]},
}


def test_right_requests_get_what_the_document_promises(api: RunningApi, document: dict[str, Any]) -> None:
    checker, found = Checker(api, document), {}
    names = {"provider": "mocked", "route": "inference.local", "token": "box", "key": "laptop"}
    names |= {"budget": "all", "policy": "1", "account": "team", "delete_price": "mocked", "receipt": "ab-1"}
    made = Receipt(0, "ab-1", 1.5, "default", "r", "p", "m", 0, 1, 200, b"", b"", b"", b"")
    api.running.call(api.running.control.store.append_receipts([made], again=False))
    runner = api.post("/runners/register", {"name": "named"}).json["id"]
    model = api.post(f"/runners/{runner}/models", {**RIGHT["register_ai_model"], "name": "named"}).json["id"]
    names |= {"runner": runner, "rotate_runner_token": runner, "register_ai_model": runner, "model": model}
    for method, path, operation in sorted(operations(document), key=lambda each: each[0] == "DELETE"):
        name = operation["operationId"]
        found[name] = checker.check(
            method, path, {"name": names.get(name) or names.get(name.rpartition("_")[2], "")}, RIGHT.get(name)
        )
    # The provider is in use by the time that it would be deleted.
    assert found.pop("delete_provider") == 409
    assert set(found.values()) <= {200, 201}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_sent_the_answer_is_one_that_the_document_promises(
    api: RunningApi, document: dict[str, Any], data: st.DataObject
) -> None:
    method, path, operation = data.draw(st.sampled_from(list(operations(document))))
    body = None
    if "requestBody" in operation:
        shape = resolved(document, operation["requestBody"]["content"]["application/json"]["schema"])
        right = RIGHT[operation["operationId"]]
        fields = st.sampled_from([*shape["properties"], "unknown"])
        changes = st.dictionaries(fields, VALUES, max_size=2)
        body = data.draw(changes.map(lambda changed: {**right, "verify": False, **changed}) | changes | VALUES)
        if isinstance(body, dict) and "verify" not in shape["properties"]:
            body.pop("verify", None)
        if isinstance(body, dict) and body.get("verify") is True:
            body["verify"] = False
    Checker(api, document).check(method, path, {"name": data.draw(NAMES)}, body)


def test_metrics_that_are_open_ask_for_nothing_in_the_document(tmp_path: Path) -> None:
    with watched_api(tmp_path, metrics_are_open=True) as (api, _):
        paths = api.get("/openapi.json").json["paths"]
    assert "security" not in paths["/metrics"]["get"]
    assert set(paths["/metrics"]["get"]["responses"]) == {"200"}
    assert "security" in paths["/stats/live"]["get"]


def test_the_document_is_for_the_admin_like_all_else(api: RunningApi) -> None:
    assert api.get("/openapi.json", headers={}).status == 401
    assert api.get("/openapi.json", headers=BEARER).headers["content-type"] == "application/json"


def test_the_document_is_made_when_it_is_asked_for_and_no_start_waits_for_it(tmp_path: Path) -> None:
    with watched_api(tmp_path) as (api, _):

        async def later() -> str:
            return ""

        api.api.router.add_api_route("/api/v1/later", later, operation_id="later")
        first, second = (api.get("/openapi.json").json for _ in range(2))
        assert "/api/v1/later" in first["paths"]
        assert first == second
