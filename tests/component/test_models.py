"""Models by name on the gateway's data listener: whom a request reaches, and what is said when it reaches nobody."""

import json
from collections.abc import Iterator

import anthropic
import openai
import pytest

from pointsman.core.model_table import ModelTable
from tests.support.canary import KEY
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import RawClient
from tests.support.upstream import Upstream, UpstreamPeer

CHAT = "/v1/chat/completions"


def table(upstream: Upstream, default: str = "") -> ModelTable:
    fast = candidate(upstream.url, route="fast", model="real-fast")
    claude = candidate(
        upstream.url, route="claude", model="real-claude", provider_type="anthropic", protocols=("anthropic_messages",)
    )
    return ModelTable({"fast": fast, "claude": claude, "canned": candidate("mock://x", route="canned")}, default)


@pytest.fixture
def data(upstream: Upstream) -> Iterator[DataDoor]:
    with DataDoor(table=table(upstream)) as data:
        yield data
        assert "internal error" not in data.logged()
    assert not data.leftover


def post(client: RawClient, body: bytes, path: str = CHAT, fields: str = "") -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: gateway.example:8780\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    client.send(head.encode() + body)


def begun(data: DataDoor, upstream: Upstream, body: bytes, path: str = CHAT) -> tuple[RawClient, UpstreamPeer]:
    client = data.connect()
    post(client, body, path, "Authorization: Bearer whatever\r\nCookie: a=b\r\n")
    return client, upstream.accept()


def test_a_model_names_a_route_and_only_its_value_changes(data: DataDoor, upstream: Upstream) -> None:
    client, peer = begun(data, upstream, b'{ "stream":false, "model" : "fast", "x":1e2 }')
    received = peer.request()
    assert received.body == b'{ "stream":false, "model" : "real-fast", "x":1e2 }'
    assert received.value(b"authorization") == f"Bearer {KEY}".encode()
    assert received.value(b"cookie") is None
    peer.respond(b'{"ok":true}')
    answer = client.answer()
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert (answer.value(b"x-pointsman-route"), answer.value(b"x-pointsman-model")) == (b"fast", b"real-fast")
    client.close()


def test_a_stream_is_relayed_event_by_event(data: DataDoor, upstream: Upstream) -> None:
    client, peer = begun(data, upstream, b'{"model":"fast","stream":true}')
    peer.request()
    peer.start_events()
    for number in range(3):
        event = b"data: %d\n\n" % number
        peer.chunk(event)
        client.read_until(event)
    peer.chunk(b"data: [DONE]\n\n")
    peer.end_chunks()
    client.read_until(b"0\r\n\r\n")
    client.close()


def test_a_client_that_goes_closes_its_upstream(data: DataDoor, upstream: Upstream) -> None:
    client, peer = begun(data, upstream, b'{"model":"fast"}')
    peer.request()
    client.close()
    assert peer.wait_closed()


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (b'"fsat"', "the model 'fsat' does not exist; did you mean 'fast'?"),
        (b'"gpt-4o"', "the model 'gpt-4o' does not exist; GET /v1/models lists what there is"),
        (b'"inference.local"', "the model 'inference.local' does not exist; GET /v1/models lists what there is"),
        (b'"' + b"x" * 65 + b'"', "the model does not exist; GET /v1/models lists what there is"),
        (b'"a\\nb"', "the model does not exist; GET /v1/models lists what there is"),
    ],
)
def test_a_model_that_leads_nowhere_is_404_with_the_nearest_name(data: DataDoor, model: bytes, hint: str) -> None:
    with data.connect() as client:
        for _ in range(2):
            post(client, b'{"model":%b}' % model)
            answer = client.answer()
            assert answer.status == 404
            assert json.loads(answer.body)["error"] == {
                "message": hint,
                "type": "invalid_request_error",
                "param": None,
                "code": "model_not_found",
            }


@pytest.mark.parametrize("body", [b"{}", b"", b"text", b'{"messages":[]}'])
def test_a_request_without_a_model_says_what_is_missing(data: DataDoor, body: bytes) -> None:
    with data.connect() as client:
        post(client, body)
        answer = client.answer()
    assert answer.status == 404
    assert "names no model" in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize("body", [b'{"model":1}', b'{"model":null}', b'{"model":["fast"]}', b'{"model":"fast"', b"[]"])
def test_a_body_that_is_malformed_is_400(data: DataDoor, body: bytes) -> None:
    with data.connect() as client:
        post(client, body)
        assert client.answer().status == 400


def test_two_models_are_400_and_reach_nobody(data: DataDoor, upstream: Upstream) -> None:
    with data.connect() as client:
        post(client, b'{"model":"fast","mod\\u0065l":"canned"}')
        assert client.answer().status in (400, 404)
    assert upstream.saw_nothing()


def test_the_default_route_takes_every_other_name(upstream: Upstream) -> None:
    with DataDoor(table=table(upstream, default="canned")) as data, data.connect() as client:
        for body in (b'{"model":"gpt-4o"}', b"{}", b'{"model":"canned"}'):
            post(client, body)
            answer = client.answer()
            assert (answer.status, answer.value(b"x-pointsman-route")) == (200, b"canned")


def test_a_dialect_that_the_route_does_not_speak_is_400(data: DataDoor, upstream: Upstream) -> None:
    with data.connect() as client:
        post(client, b'{"model":"claude"}')
        answer = client.answer()
        assert answer.status == 400
        assert b"requests are not translated; it speaks anthropic_messages" in answer.body
    assert upstream.saw_nothing()


def test_errors_of_messages_are_in_anthropics_shape(data: DataDoor) -> None:
    with data.connect() as client:
        post(client, b'{"model":"nobody"}', "/v1/messages")
        answer = client.answer()
    error = json.loads(answer.body)
    assert answer.status == 404
    assert error["type"] == "error"
    assert error["error"]["type"] == "not_found_error"
    assert error["request_id"].encode() == answer.value(b"x-pointsman-request-id")


def test_models_are_listed_and_looked_up(data: DataDoor) -> None:
    with data.connect() as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\nGET /v1/models/fast HTTP/1.1\r\nHost: a\r\n\r\n")
        listed, one = json.loads(client.answer().body), json.loads(client.answer().body)
        assert [each["id"] for each in listed["data"]] == ["fast", "claude", "canned"]
        assert one == listed["data"][0]
        client.send(b"GET /v1/models/fsat HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = client.answer()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "model_not_found")


def test_a_listener_that_is_not_open_serves_nothing_but_health(upstream: Upstream) -> None:
    data = DataDoor(table=table(upstream))
    data.is_open = False
    with data:
        for target in ("GET /v1/models", "GET /v1/models/fast", f"POST {CHAT}"):
            with data.connect() as client:
                client.send(f"{target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
                answer = client.answer()
                assert (answer.status, json.loads(answer.body)["error"]["code"]) == (401, "invalid_api_key")
        with data.connect() as client:
            client.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.answer().status == 200


def test_the_official_clients_are_served_by_one_base_url(data: DataDoor) -> None:
    url = f"http://127.0.0.1:{data.address[1]}"
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(model="canned", messages=[{"role": "user", "content": "hello"}])
    assert answer.choices[0].message.content
    assert [each.id for each in client.models.list()] == ["fast", "claude", "canned"]
    with pytest.raises(openai.NotFoundError, match="did you mean 'fast'"):
        client.chat.completions.create(model="fsat", messages=[])
    claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(model="nobody", max_tokens=1, messages=[{"role": "user", "content": "hello"}])
    client.close()
    claude.close()
