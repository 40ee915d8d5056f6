"""What cannot be an AI model is refused before a store is asked: addresses, texts, credentials, one too many."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from pointsman.core.ai_model import LONGEST_LABEL, MOST_MODELS
from pointsman.core.route import LONGEST_MODEL
from pointsman.gateway.audit_layer import AuditLayer
from pointsman.store.tables import ai_models
from pointsman.store.writing import SqlWriter
from tests.conformance.records import direct_model
from tests.support.rest import RunningApi, rest_api

MODEL = {"name": "Llama", "model_identifier": "llama3.2:3b", "api_endpoint": "http://localhost:11434/v1"}
DIRECT = {"name": "Far", "model_identifier": "big", "api_endpoint": "https://93.184.215.14/v1"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("models")) as api:
        yield api


@pytest.fixture(scope="module")
def runner(api: RunningApi) -> str:
    return registered(api)


def registered(api: RunningApi, name: str = "laptop") -> str:
    runner_id: str = api.post("/runners/register", {"name": name}).json["id"]
    return runner_id


def models(api: RunningApi) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/ai-models").json["ai_models"]
    return found


@pytest.fixture(autouse=True)
def nothing_stays(api: RunningApi) -> Iterator[None]:
    yield
    for each in models(api):
        assert api.delete(f"/ai-models/{each['id']}").status == 200


@pytest.mark.parametrize(
    "field", ["api_key", "API_KEY", "apikey", "token", "OPENAI_API_KEY", "password", "credentials", "authorization"]
)
@pytest.mark.guarantee("S1")
def test_credentials_are_refused(api: RunningApi, runner: str, field: str) -> None:
    for path, body in ((f"/runners/{runner}/models", MODEL), ("/ai-models", DIRECT)):
        refused = api.post(path, {**body, field: "sk-secret-value"})
        assert refused.status == 400
        assert "a model has none" in refused.error
        assert b"sk-secret-value" not in refused.body
    assert not models(api)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pass@localhost:1/v1",
        "http://localhost:1/v1?api_key=x",
        "http://localhost:1/v1#x",
        "http://localhost:1/v2",
        "http://localhost:1/v1/chat",
        "http://localhost:1",
        "http://localhost/v1",
        "https://localhost:1/v1",
        "http://192.168.0.2:1/v1",
        "http://127.0.0.2:1/v1",
        "http://models.example:1/v1",
        "http://localhost:0/v1",
        "http://localhost:65536/v1",
        "mock://answers",
        "",
    ],
)
@pytest.mark.guarantee("S1")
def test_a_runners_address_is_its_own_loopback_and_nothing_else(api: RunningApi, runner: str, url: str) -> None:
    refused = api.post(f"/runners/{runner}/models", {**MODEL, "api_endpoint": url})
    assert refused.status == 400
    assert "api_endpoint" in refused.error
    made = api.post(f"/runners/{runner}/models", MODEL).json["id"]
    assert api.put(f"/ai-models/{made}", {**MODEL, "api_endpoint": url}).status == 400


@pytest.mark.parametrize(
    ("field", "right", "wrong"),
    [
        ("name", "n" * LONGEST_LABEL, "n" * (LONGEST_LABEL + 1)),
        ("model_identifier", "m" * LONGEST_MODEL, "m" * (LONGEST_MODEL + 1)),
        ("alias", "a" * 253, "a" * 254),
        ("name", "x", ""),
        ("model_identifier", "x", " x"),
        ("name", "Ünï 😀", "a\nb"),
    ],
)
def test_texts_have_bounds(api: RunningApi, runner: str, field: str, right: str, wrong: str) -> None:
    assert api.post(f"/runners/{runner}/models", {**MODEL, field: wrong}).status == 400
    assert api.post(f"/runners/{runner}/models", {**MODEL, field: right}).status == 201


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9/v1", "loopback"),
        ("http://[::1]:9/v1", "loopback"),
        ("http://localhost:9/v1", "loopback"),
        ("http://localhost.:9/v1", "loopback"),
        ("http://10.1.2.3/v1", "private"),
        ("https://192.168.1.1/v1", "private"),
        ("https://[fd12::1]/v1", "private"),
        ("https://[::ffff:10.0.0.1]/v1", "private"),
        ("https://100.64.0.1/v1", "shared"),
        ("http://169.254.169.254/latest", "link-local or metadata"),
        ("http://[fe80::1]/v1", "link-local"),
        ("http://0.0.0.0:9/v1", "unspecified"),
        ("http://0.1.2.3:9/v1", "this network"),
        ("http://2130706433/v1", "ambiguous"),
        ("gguf:///etc/passwd", "neither http:// nor https://"),
        ("mock://answers", "neither http:// nor https://"),
        ("https://user:pass@93.184.215.14/v1", "user name or password"),
        ("https://93.184.215.14/v1?key=x", "query"),
    ],
)
def test_a_direct_model_leads_to_public_addresses_only(api: RunningApi, url: str, reason: str) -> None:
    refused = api.post("/ai-models", {**DIRECT, "api_endpoint": url})
    assert refused.status == 400
    assert reason in refused.error
    made = api.post("/ai-models", DIRECT).json
    assert api.put(f"/ai-models/{made['id']}", {**DIRECT, "api_endpoint": url}).status == 400
    assert models(api) == [made]


def test_a_direct_model_is_spelt_in_one_way_and_available(api: RunningApi) -> None:
    made = api.post("/ai-models", {**DIRECT, "api_endpoint": "HTTPS://93.184.215.14:443/v1/"})
    assert made.status == 201
    assert made.json["api_endpoint"] == "https://93.184.215.14/v1"
    assert (made.json["endpoint_type"], made.json["runner_id"], made.json["available"]) == ("direct", None, True)
    assert made.json["alias"] == "big"
    assert api.post("/ai-models", DIRECT).json["alias"] == "big-2"


def test_a_name_that_leads_nowhere_is_told_as_such(api: RunningApi) -> None:
    refused = api.post("/ai-models", {**DIRECT, "api_endpoint": "https://nothing.invalid/v1"})
    assert (refused.status, "no address at present" in refused.error) == (409, True)


def test_an_account_has_at_most_so_many_models(tmp_path: Path) -> None:
    async def fill(api: RunningApi, count: int) -> None:
        rows = [{**asdict(direct_model(f"m{number}")), "context": ""} for number in range(count)]
        store = api.running.control.store
        assert isinstance(store, AuditLayer)
        async with store._store.write() as writer:  # a thousand entries of the audit record would take their time
            assert isinstance(writer, SqlWriter)
            await writer._connection.execute(insert(ai_models), rows)

    with rest_api(tmp_path) as api:
        api.running.call(fill(api, MOST_MODELS - 1))
        assert api.post("/ai-models", DIRECT).status == 201
        for path, body in (("/ai-models", DIRECT), (f"/runners/{registered(api)}/models", MODEL)):
            refused = api.post(path, body)
            assert (refused.status, f"{MOST_MODELS} models" in refused.error) == (400, True)
