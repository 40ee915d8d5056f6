"""What reaches the upstream: the client's bytes, the operator's model and key, and nothing else (DESIGN 6.1)."""

import pytest

from tests.support.door import KEY, Door, candidate
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream


@pytest.mark.guarantee("J2", "J5")
def test_only_the_model_differs_between_what_was_sent_and_what_arrived(door: Door, upstream: Upstream) -> None:
    body = b'{ "z":1.10, "model" : "asked" ,"n":123456789012345678901234567890,"u":"\\u00e9\\/","a":[ ] }'
    with door.tunnel() as client:
        client.send(post(body))
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.body == body.replace(b'"asked"', b'"real-model"')
    assert request.line == b"POST /v1/chat/completions HTTP/1.1"


@pytest.mark.guarantee("F13")
def test_a_request_split_at_every_byte_arrives_the_same(door: Door, upstream: Upstream) -> None:
    data = post(b'{"model":"x","a":1}', fields=b"Content-Type: application/json\r\n")
    with door.plain() as client:
        for byte in data:
            client.send(bytes([byte]))
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.body == b'{"model":"real-model","a":1}'


@pytest.mark.guarantee("F5", "F7")
def test_a_chunked_body_arrives_with_a_length(door: Door, upstream: Upstream) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: inference.local\r\nTransfer-Encoding: chunked\r\n\r\n"
    with door.plain() as client:
        client.send(head + b'8;x=y\r\n{"model"\r\n5\r\n:"x"}\r\n0\r\nT: 1\r\n\r\n')
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.body == b'{"model":"real-model"}'
    assert request.value(b"transfer-encoding") is None
    assert request.value(b"t") is None


CLIENT_FIELDS = (
    b"Authorization: Bearer client-key\r\nX-Api-Key: client-key\r\nx_api_key: client-key\r\nCookie: a=b\r\n"
    b"Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: gzip\r\nUser-Agent: test/1\r\n"
    b"OpenAI-Organization: org\r\nX-Model-Id: m\r\nAnthropic-Version: 2026-01-01\r\nAnthropic-Beta: b\r\n"
    b"TE: trailers\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic x\r\nUpgrade: h2c\r\nX-Forwarded-For: 1.2.3.4\r\n"
    b"X-Pointsman-Hop: 1\r\nForwarded: for=1\r\nReferer: http://secret/\r\n"
)


@pytest.mark.guarantee("K2", "R1")
@pytest.mark.parametrize(
    ("provider_type", "kept", "auth"),
    [
        ("openai", {b"openai-organization", b"x-model-id"}, (b"authorization", b"Bearer " + KEY.encode())),
        ("nvidia", {b"x-model-id"}, (b"authorization", b"Bearer " + KEY.encode())),
        ("anthropic", {b"anthropic-version", b"anthropic-beta"}, (b"x-api-key", KEY.encode())),
        ("someone-else", set(), (b"authorization", b"Bearer " + KEY.encode())),
        ("", set(), (b"authorization", b"Bearer " + KEY.encode())),
    ],
)
def test_only_listed_headers_and_our_own_key_reach_a_provider(
    upstream: Upstream, provider_type: str, kept: set[bytes], auth: tuple[bytes, bytes]
) -> None:
    with Door(candidate(upstream.url, provider_type=provider_type)) as door, door.plain() as client:
        client.send(post(fields=CLIENT_FIELDS))
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    common = {b"content-type", b"accept", b"accept-encoding", b"user-agent"}
    assert {name.lower() for name, _ in request.fields} == common | kept | {b"host", b"content-length", auth[0]}
    assert request.value(auth[0]) == auth[1]
    assert request.value(b"host") == upstream.url.split("/")[2].encode()
    assert b"client-key" not in b"".join(name + value for name, value in request.fields)


def test_a_default_header_is_sent_unless_the_client_sent_one(upstream: Upstream) -> None:
    with Door(candidate(upstream.url, provider_type="anthropic")) as door, door.plain() as client:
        client.send(post(path=b"/v1/messages"))
        peer = upstream.accept()
        assert peer.request().value(b"anthropic-version") == b"2023-06-01"
        peer.respond()
        assert client.answer().status == 200
        client.send(post(path=b"/v1/messages", fields=b"Anthropic-Version: 2026-10-21\r\n"))
        assert peer.request().value(b"anthropic-version") == b"2026-10-21"
        peer.respond()
        assert client.answer().status == 200


def test_a_candidate_without_a_key_sends_none(upstream: Upstream) -> None:
    with Door(candidate(upstream.url, api_key=None)) as door, door.plain() as client:
        client.send(post(fields=b"Authorization: Bearer client-key\r\n"))
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.value(b"authorization") is None


def test_the_query_is_left_out_of_matching_and_forwarded_as_sent(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        client.send(post(path=b"/v1/messages?beta=true&x=%2F"))
        peer = upstream.accept()
        assert peer.request().line == b"POST /v1/messages?beta=true&x=%2F HTTP/1.1"
        peer.respond()
        assert client.answer().status == 200


def test_an_absolute_target_is_sent_on_as_a_path(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        client.send(post(path=b"https://inference.local/v1/responses?a=b"))
        peer = upstream.accept()
        assert peer.request().line == b"POST /v1/responses?a=b HTTP/1.1"
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("U8")
@pytest.mark.parametrize(
    ("base", "line"),
    [
        ("/v1", b"GET /v1/models HTTP/1.1"),
        ("/v1/", b"GET /v1/models HTTP/1.1"),
        ("", b"GET /v1/models HTTP/1.1"),
        ("/", b"GET /v1/models HTTP/1.1"),
        ("/api", b"GET /api/v1/models HTTP/1.1"),
        ("/openai/v1", b"GET /openai/v1/models HTTP/1.1"),
        ("/xv1", b"GET /xv1/v1/models HTTP/1.1"),
    ],
)
def test_a_v1_that_endpoint_and_path_share_appears_once(upstream: Upstream, base: str, line: bytes) -> None:

    with Door(candidate(upstream.url.removesuffix("/v1") + base)) as door, door.plain() as client:
        client.send(GET_MODELS)
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.line == line
    assert request.value(b"content-length") is None


@pytest.mark.guarantee("J2")
def test_a_body_that_is_not_json_passes_unchanged(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        client.send(post(b"--b\r\nmodel=x\r\n--b--", fields=b"Content-Type: multipart/form-data; boundary=b\r\n"))
        peer = upstream.accept()
        assert peer.request().body == b"--b\r\nmodel=x\r\n--b--"
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("J1", "J2", "J3", "J5")
@pytest.mark.parametrize(
    "body",
    [b'{"model":1,"mod\\u0065l":2}', b"\xef\xbb\xbf{}", '{"model":"x"}'.encode("utf-16"), b'{"model":NaN}', b"[1]"],
)
def test_a_body_that_could_dodge_the_model_is_400_and_no_upstream_sees_it(
    door: Door, upstream: Upstream, body: bytes
) -> None:
    with door.plain() as client:
        client.send(post(body))
        answer = client.answer()
        assert (answer.status, answer.body) == (400, b'{"error":"bad request"}')
        client.send(GET_MODELS)
        peer = upstream.accept()
        assert peer.request().line.startswith(b"GET")
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("J6")
def test_fields_of_the_body_never_route_or_authenticate(door: Door, upstream: Upstream) -> None:
    body = b'{"api_base":"http://127.0.0.1:1","base_url":"http://127.0.0.1:1","api_key":"k","model":"real-model"}'
    with door.plain() as client:
        client.send(post(body))
        peer = upstream.accept()
        request = peer.request()
        peer.respond()
        assert client.answer().status == 200
    assert request.body == body
    assert request.value(b"authorization") == b"Bearer " + KEY.encode()


def test_the_upstream_connection_is_kept_for_the_next_request(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        for _ in range(3):
            client.send(post())
            if _ == 0:
                peer = upstream.accept()
            peer.request()
            peer.respond()
            assert client.answer().status == 200
    assert upstream.saw_nothing()
