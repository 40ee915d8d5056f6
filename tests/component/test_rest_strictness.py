"""What is refused before an operation sees it, and what an error may repeat."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from pointsman.core import provider as records
from pointsman.core.route import LONGEST_MODEL, LONGEST_TIMEOUT_SECONDS
from pointsman.gateway.lifetime import LONGEST_LIFETIME_SECONDS
from pointsman.gateway.rest.strict_request import MOST_KEYS
from tests.support.canary import KEY, Finder
from tests.support.rest import BEARER, OPENAI, Pieces, RunningApi, rest_api

MIB = 1 << 20
FINDER = Finder({"key": KEY})
SETTING: dict[str, Any] = {"provider_name": "mocked", "model": "m", "verify": False}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("strictness")) as api:
        api.running.provide()
        api.running.point("r")
        yield api


@pytest.mark.parametrize(
    ("number", "status"),
    [("60.0", 201), ("6e1", 201), ("60.5", 400), ('"60"', 400), ("true", 400), ("1e999", 400), ("0.0", 400)],
)
def test_a_number_in_a_body_is_whole_as_the_document_has_it(api: RunningApi, number: str, status: int) -> None:
    body = f'{{"name":"box-{len(number)}-{status}","lifetime_seconds":{number}}}'.encode()
    answer = api.post("/sandbox-tokens", body)
    assert answer.status == status, answer.body
    assert status == 201 or "lifetime_seconds" in answer.error


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=1", 200),
        ("limit=1000", 200),
        ("offset=0", 200),
        ("offset=1000000000", 200),
        ("limit=0", 400),
        ("limit=1001", 400),
        ("limit=-1", 400),
        ("limit=1.0", 400),
        ("limit=1e2", 400),
        ("limit=+1", 400),
        ("limit=%201", 400),
        ("limit=1_0", 400),
        ("limit=٣", 400),
        ("limit=", 400),
        ("limit=1&limit=1", 400),
        ("offset=-1", 400),
        ("offset=1000000001", 400),
        ("offset=99999999999999999999999999", 400),
        ("limits=1", 400),
        ("force=true", 400),
    ],
)
def test_a_query_is_read_exactly(api: RunningApi, query: str, status: int) -> None:
    answer = api.get(f"/providers?{query.replace('٣', '%D9%A3')}")
    assert answer.status == status, answer.body
    assert status == 200 or query.partition("=")[0] in answer.error


UNREADABLE = {
    "nothing": b"",
    "half an object": b'{"name":',
    "a number that JSON has not": b'{"name": NaN}',
    "infinity": b'{"name": -Infinity}',
    "two values": b"{} {}",
    "UTF-16": json.dumps(OPENAI).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "bytes that are not UTF-8": b'{"name": "\xff"}',
    "a comment": b"{} // none",
    "single quotes": b"{'name': 'a'}",
    "a trailing comma": b'{"name": "a",}',
    "a control character": b'{"name": "a\x00b"}',
    "a key twice": b'{"name": "a", "name": "b"}',
    "a key twice, deeper": b'{"config": {"a": "1", "\\u0061": "2"}}',
    "a hundred thousand brackets": b"[" * 100_000,
    "a number of a hundred thousand digits": b'{"name": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_body_that_is_not_json_with_one_meaning_is_refused(api: RunningApi, what: str) -> None:
    answer = api.post("/providers", UNREADABLE[what])
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_argument")
    assert "JSON" in answer.error


def test_an_object_has_at_most_a_thousand_keys(api: RunningApi) -> None:
    for beyond, told in ((0, "at most 64 items"), (1, "at most 1000")):
        config = {f"K{number}": "v" for number in range(MOST_KEYS + beyond)}
        assert told in api.post("/providers", {**OPENAI, "config": config}).error


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("application/json; charset=utf-8", 201),
        ('Application/JSON;charset="UTF-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=a", 415),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/jsonp", 415),
        ("application/vnd.a+json", 415),
        ("", 415),
    ],
)
def test_a_body_says_that_it_is_json(api: RunningApi, content_type: str, status: int) -> None:
    name = f"typed-{abs(hash(content_type))}"
    answer = api.post("/providers", {**OPENAI, "name": name}, headers={**BEARER, "content-type": content_type})
    assert answer.status == status


def test_a_body_without_a_type_is_refused(api: RunningApi) -> None:
    head = "\r\n".join(f"{name}: {value}" for name, value in BEARER.items())
    request = (
        f"POST /api/v1/providers HTTP/1.1\r\nhost: a\r\n{head}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    )
    assert api.raw(request.encode()).startswith(b"HTTP/1.1 415 ")


def test_an_encoded_body_is_refused(api: RunningApi) -> None:
    assert api.post("/providers", b"{}", headers={**BEARER, "content-encoding": "gzip"}).status == 415


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(MIB, 201), (MIB + 1, 413)])
def test_a_body_has_at_most_one_mebibyte(api: RunningApi, size: int, status: int, chunked: bool) -> None:
    made = json.dumps({**OPENAI, "name": f"large-{chunked}"}).encode()
    body: Any = made + b" " * (size - len(made))
    if chunked:
        body = Pieces([body[:1000], body[1000:]])
    answer = api.post("/providers", body)
    assert answer.status == status
    assert status == 201 or "1048576" in answer.error


def test_a_body_that_says_it_is_too_large_is_not_waited_for(api: RunningApi) -> None:
    fields = f"authorization: {BEARER['authorization']}\r\ncontent-type: application/json\r\n"
    head = f"POST /api/v1/accounts HTTP/1.1\r\nhost: a\r\n{fields}content-length: {MIB + 1}\r\n\r\n"
    assert api.raw(head.encode(), until=b"}}").startswith(b"HTTP/1.1 413 ")


def made(**changes: Any) -> dict[str, Any]:
    return {**OPENAI, "name": "never", **changes}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (made(unknown=1), "unknown"),
        (made(id="a"), "id"),
        (made(account="other"), "account"),
        (made(name=1), "name"),
        (made(name=""), "name"),
        (made(name="-a"), "name"),
        (made(name="a/b"), "name"),
        (made(name="a\n"), "name"),
        (made(name="\ud800"), "name"),
        (made(name="é"), "name"),
        (made(type=None), "type"),
        (made(type=""), "type"),
        (made(type=["openai"]), "type"),
        (made(credentials=None), "credentials"),
        (made(credentials=[]), "credentials"),
        (made(credentials="OPENAI_API_KEY"), "credentials"),
        (made(credentials={"A": 1}), "credentials.A"),
        (made(credentials={"A": None}), "credentials.A"),
        (made(credentials={"A": {"b": "c"}}), "credentials.A"),
        (made(credentials={"A": "REDACTED"}), "credentials.A"),
        (made(credentials={}), "credentials"),
        (made(credentials={"A": ""}), "credentials"),
        (made(credentials={"A": "b\0c"}), "credential A"),
        (made(config={"A": True}), "config.A"),
        (made(config={"A": 1.5}), "config.A"),
        (made(config={"": "b"}), "config"),
        ([], "object"),
        ("a", "object"),
        (None, "object"),
        (1, "object"),
        ({}, "type"),
    ],
)
def test_what_a_provider_cannot_be_is_refused_and_the_field_named(api: RunningApi, body: Any, field: str) -> None:
    answer = api.post("/providers", json.dumps(body).encode())
    assert answer.status == 400, answer.body
    assert field in answer.error
    assert api.get("/providers/never").status == 404


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"timeout_seconds": "60"}, "timeout_seconds"),
        ({"timeout_seconds": 60.5}, "timeout_seconds"),
        ({"timeout_seconds": True}, "timeout_seconds"),
        ({"timeout_seconds": 10**30}, "timeout_seconds"),
        ({"verify": "false"}, "verify"),
        ({"verify": 0}, "verify"),
        ({"verify": None}, "verify"),
        ({"model": ""}, "model"),
        ({"model": 1}, "model"),
        ({"provider_name": "a b"}, "provider_name"),
        ({"version": 7}, "version"),
        ({"kind": "chain"}, "kind"),
        ({"account": "other"}, "account"),
        ({"base_url": "http://a"}, "base_url"),
    ],
)
def test_what_a_route_cannot_be_is_refused_and_the_field_named(
    api: RunningApi, changes: dict[str, Any], field: str
) -> None:
    for ask in (api.put, api.patch):
        answer = ask("/routes/r", {**SETTING, **changes})
        assert answer.status == 400, answer.body
        assert field in answer.error
    assert api.get("/routes/r").json["version"] == 1


def bounded() -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Every bound of a field: at it, and one beyond it."""
    for beyond in (0, 1):
        status = 400 if beyond else 201
        yield "POST", "/providers", made(name=f"a{beyond}" + "b" * (records.LONGEST_NAME - 2 + beyond)), status
        yield "POST", "/providers", made(name=f"type{beyond}", type="t" * (records.LONGEST_TYPE + beyond)), status
        most = {f"C{number}": "value" for number in range(records.MOST_CREDENTIALS + beyond)}
        yield "POST", "/providers", made(name=f"credentials{beyond}", credentials=most), status
        most = {f"C{number}": "value" for number in range(records.MOST_CONFIG_ENTRIES + beyond)}
        yield "POST", "/providers", made(name=f"config{beyond}", config=most), status
        long_key, long_value = "K" * (records.LONGEST_KEY + beyond), "v" * (records.LONGEST_VALUE + beyond)
        for name, entry in (("key", {long_key: "v"}), ("value", {"K": long_value})):
            yield "POST", "/providers", made(name=f"config-{name}{beyond}", config=entry), status
            yield "POST", "/providers", made(name=f"credential-{name}{beyond}", credentials=entry), status
        lifetime = {"lifetime_seconds": LONGEST_LIFETIME_SECONDS + beyond}
        yield "POST", "/sandbox-tokens", {"name": f"long{beyond}", **lifetime}, status
        yield "POST", "/sandbox-tokens", {"name": f"short{beyond}", "lifetime_seconds": 1 - beyond}, status
        status = 400 if beyond else 200
        yield "PUT", "/routes/a", {**SETTING, "model": "m" * (LONGEST_MODEL + beyond)}, status
        yield "PUT", "/routes/a", {**SETTING, "timeout_seconds": LONGEST_TIMEOUT_SECONDS + beyond}, status
        yield "PUT", "/routes/a", {**SETTING, "timeout_seconds": 0 - beyond}, status


@pytest.mark.parametrize(("method", "path", "body", "status"), list(bounded()))
def test_a_fields_bound_is_exact(api: RunningApi, method: str, path: str, body: dict[str, Any], status: int) -> None:
    assert api.ask(method, f"/api/v1{path}", body).status == status


def test_a_record_at_all_of_its_limits_fits_into_a_body(api: RunningApi) -> None:
    key, value = "K" * (records.LONGEST_KEY - 3), "v" * records.LONGEST_VALUE
    full = made(
        name="full",
        credentials={f"{key}{number:03}": value for number in range(records.MOST_CREDENTIALS)},
        config={f"{key}{number:03}": value for number in range(records.MOST_CONFIG_ENTRIES)},
    )
    assert api.post("/providers", full).status == 201
    assert api.get("/providers/full").status == 200


IN_WRONG_PLACES: dict[str, tuple[str, str, Any]] = {
    "an unknown field": ("POST", "/providers", {KEY: "a"}),
    "an unknown field's value": ("POST", "/providers", {"apikey": KEY}),
    "the name": ("POST", "/providers", made(name=KEY)),
    "a name that cannot be": ("POST", "/providers", made(name=KEY + "-")),
    "the type": ("POST", "/providers", made(type=KEY * 2)),
    "a credential's key": ("POST", "/providers", made(credentials={KEY: "a"})),
    "a credential's key, too long": ("POST", "/providers", made(credentials={KEY * 6: "a"})),
    "a credential's value with a NUL": ("POST", "/providers", made(credentials={"A": KEY + "\0"})),
    "a credential's value, too long": ("POST", "/providers", made(credentials={"A": KEY * 200})),
    "credentials as text": ("POST", "/providers", made(credentials=KEY)),
    "credentials as a list": ("POST", "/providers", made(credentials=[KEY])),
    "credentials, deeper": ("POST", "/providers", made(credentials={"A": {"B": KEY}})),
    "a configuration's key": ("POST", "/providers", made(config={KEY: "a"})),
    "a configuration's key to delete": ("PATCH", "/providers/mocked", {"config": {KEY: ""}}),
    "a configuration's value with a line break": ("POST", "/providers", made(config={"A": KEY + "\n"})),
    "the body": ("POST", "/providers", KEY),
    "a body that is not JSON": ("POST", "/providers", KEY.encode()),
    "half a body": ("POST", "/providers", json.dumps(OPENAI).encode()[:-5]),
    "a key twice": ("POST", "/providers", f'{{"{KEY}": 1, "{KEY}": 2}}'.encode()),
    "an escaped body": ("POST", "/providers", {f"\ud800{KEY}": 1}),
    "the path of a provider": ("GET", f"/providers/{KEY}", None),
    "the path of a deletion": ("DELETE", f"/providers/{KEY}", None),
    "the path of a route": ("PUT", f"/routes/{KEY}", SETTING),
    "the path of a token": ("DELETE", f"/sandbox-tokens/{KEY}", None),
    "no path": ("GET", f"/{KEY}", None),
    "a path with a method that is not": ("POST", f"/providers/{KEY}", {}),
    "a path that names nothing": ("GET", f"/providers/%20{KEY}", None),
    "the query": ("GET", f"/providers?{KEY}=1", None),
    "the query's value": ("GET", f"/providers?limit={KEY}", None),
    "the query, twice": ("GET", f"/providers?limit={KEY}&limit={KEY}", None),
    "a route's provider": ("PUT", "/routes/r", {**SETTING, "provider_name": KEY}),
    "a route's timeout": ("PUT", "/routes/r", {**SETTING, "timeout_seconds": KEY}),
    "the path of a key": ("DELETE", f"/keys/{KEY}", None),
    "a key's name": ("POST", "/keys", {"name": KEY}),
    "a key's route": ("POST", "/keys", {"routes": [KEY]}),
    "a key's permission": ("POST", "/keys", {"permissions": [KEY]}),
    "a token's name": ("POST", "/sandbox-tokens", {"name": KEY}),
    "a token's route": ("POST", "/sandbox-tokens", {"name": "a", "route": KEY}),
    "a token's unknown route": ("POST", "/sandbox-tokens", {"name": "a", "route": KEY.removeprefix("sk-").lower()}),
    "an account's name": ("POST", "/accounts", {"name": KEY}),
}


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("place", IN_WRONG_PLACES)
def test_a_key_in_a_wrong_place_is_not_repeated(api: RunningApi, place: str) -> None:
    method, path, body = IN_WRONG_PLACES[place]
    answer = api.ask(method, f"/api/v1{path}", body)
    assert answer.status in (400, 404, 405, 409), (answer.status, place)
    told = "\n".join([*api.running.lines, *api.records])
    found = Finder({"key": KEY, "lower key": KEY.lower()})
    assert not found.find(answer.body + str(answer.headers).encode() + told.encode())


@pytest.mark.parametrize("header", ["x-pointsman-account", "authorization", "content-type", "host", "cookie"])
def test_a_key_in_a_header_is_not_repeated(api: RunningApi, header: str) -> None:
    for value in (KEY, f"Bearer {KEY}", f"{KEY}-"):
        answer = api.ask("POST", "/api/v1/providers", {}, {**BEARER, header: value})
        assert not FINDER.find(answer.body + str(answer.headers).encode())
    assert not FINDER.find("\n".join([*api.running.lines, *api.records]).encode())


def test_every_answer_is_for_nobodys_cache_and_no_other_type(api: RunningApi) -> None:
    answers = [api.get("/providers"), api.get("/nothing"), api.get("/status", headers={}), api.post("/providers", b"{")]
    for answer in [*answers, api.ask("GET", "/health", headers={}), api.ask("PUT", "/health")]:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"] == "application/json"
        assert "server" not in answer.headers


def test_no_other_site_is_let_in(api: RunningApi) -> None:
    asked = {**BEARER, "origin": "https://evil.example", "access-control-request-method": "POST"}
    for answer in (api.ask("OPTIONS", "/api/v1/providers", headers=asked), api.get("/providers", headers=asked)):
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("name", ["\0", "a\nb", " ", "é", "a" * 254, "..", "%", "'; drop table providers; --", "*"])
def test_a_path_that_can_name_nothing_is_refused(api: RunningApi, name: str) -> None:
    for kind in ("providers", "routes"):
        assert api.get(f"/{kind}/{quote(name, safe='')}").status == 400
        assert api.delete(f"/{kind}/{quote(name, safe='')}").status == 400


def test_a_length_and_an_encoding_together_are_not_two_requests(api: RunningApi) -> None:
    hidden = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    head = b"POST /health HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: %d\r\n\r\n0\r\n\r\n"
    answer = api.raw(head % (len(hidden) + 5) + hidden)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("version", "status"), [(b"1.0", b"200"), (b"1.1", b"200"), (b"2.0", b"505"), (b"0.9", b"505")]
)
def test_http_is_1(api: RunningApi, version: bytes, status: bytes) -> None:
    answer = api.raw(b"GET /health HTTP/%b\r\nhost: a\r\nconnection: close\r\n\r\n" % version)
    assert answer.split(b" ")[1] == status
