"""What opens the door and what is inference behind it: tables of raw bytes, and no name looked up on the way."""

import pytest

from tests.support.door import Door, candidate
from tests.support.name_server import in_own_network
from tests.support.upstream import Upstream

DENIED = b'{"error":"connection not allowed by policy"}'

AUTHORITIES = [
    "example.com:443",
    "counted.example:443",
    "inference.local.counted.example:443",
    "inference.local:80",
    "inference.local:0443",
    "inference.local:+443",
    "inference.local:443 ",
    "inference.local:４４３",
    "inference.local:65979",
    "inference.local:",
    "inference.local",
    ":443",
    "a@inference.local:443",
    "inference.local@counted.example:443",
    "[::1]:443",
    "[::ffff:127.0.0.1]:443",
    "127.0.0.1:443",
    "2130706433:443",
    "inference.local..:443",
    ".inference.local:443",
    "inference.local.evil:443",
    "xinference.local:443",
    "inference%2elocal:443",
    "inference.local%00:443",
    "inference.local\x00:443",
    "inference.local\x00.counted.example:443",
    "inference。local:443",
    "ınference.local:443",
    "inference.local:443/",
    "inference.local:443#x",
    "inference.local:443:443",
    "https://inference.local:443",
    "inference.local,counted.example:443",
    "*:443",
    "*",
]


@pytest.mark.guarantee("T1")
def test_no_refused_authority_causes_a_name_to_be_looked_up() -> None:
    connects = [each.encode().decode("latin-1") for each in AUTHORITIES]
    opened = ["inference.local:443", "INFERENCE.LOCAL.:443"]
    result = in_own_network("door", [*connects, *opened])
    # What is no request line at all (a space, a NUL, bytes above ASCII) is 400, everything else is policy.
    malformed = [each for each in AUTHORITIES if not each.isascii() or "\x00" in each or " " in each]
    assert result["statuses"] == [400 if each in malformed else 403 for each in AUTHORITIES] + [200, 200]
    assert result["asked"] == []
    assert "counted.example" in result["control"]


@pytest.mark.guarantee("T2")
@pytest.mark.parametrize("method", [b"connect", b"Connect", b"CONNECTX", b"PROPFIND", b"PRI", b"GET"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_only_connect_in_capitals_opens_the_door(door: Door, method: bytes, version: bytes) -> None:
    with door.connect() as client:
        client.send(method + b" inference.local:443 HTTP/" + version + b"\r\nHost: inference.local:443\r\n\r\n")
        answer = client.answer()
        assert (answer.status, answer.body) == (403, DENIED)
        assert client.read_to_end() == b""


@pytest.mark.guarantee("T2")
def test_nothing_that_follows_a_refused_request_is_read(door: Door, upstream: Upstream) -> None:
    connect = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
    with door.connect() as client:
        client.send(b"GET http://inference.local/ HTTP/1.1\r\nHost: inference.local\r\n\r\n" + connect)
        assert client.answer().status == 403
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


BODIES = [
    b"Content-Length: 0",
    b"Content-Length: 3",
    b"content-length:3",
    b"Transfer-Encoding: chunked",
    b"TRANSFER-ENCODING: identity",
    b"Content-Length: 0\r\nTransfer-Encoding: chunked",
    b"Content-Length : 3",
]


@pytest.mark.guarantee("T3")
@pytest.mark.parametrize("fields", BODIES)
def test_a_connect_that_announces_a_body_is_400(door: Door, fields: bytes) -> None:
    with door.connect() as client:
        client.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n")
        assert client.answer().status == 400
        assert client.read_to_end() == b""


POST_PATHS = [
    b"/v1/chat/completions/",
    b"/v1/chat/completions//",
    b"//v1/chat/completions",
    b"/v1//chat/completions",
    b"/v1/chat/../chat/completions",
    b"/./v1/chat/completions",
    b"/v1/chat/completions/.",
    b"/v1/chat/completions/..",
    b"/v1/%63hat/completions",
    b"/v1/chat%2fcompletions",
    b"/v1/chat%2Fcompletions",
    b"/v1/chat%5ccompletions",
    b"/%76%31/chat/completions",
    b"/v1/chat/completions%00",
    b"/v1/chat/completions%20",
    b"/v1/chat/completions%0a",
    b"/v1/chat/completions%3fx",
    b"/v1/chat/completions;x=y",
    b"/v1;x/chat/completions",
    b"/V1/chat/completions",
    b"/v1/Chat/Completions",
    b"/v1/chat\\completions",
    b"\\v1\\chat\\completions",
    b"/v1/chat/completions&x",
    b"/v1/chat/completions:x",
    b"/v1/models/v1/chat/completions",
    b"/v1/../v1/models",
    b"/v1/messages/count_tokens/",
    b"/v1/responses/x",
    b"https://inference.local//v1/chat/completions",
    b"https://inference.local/v1/../v1/chat/completions",
]


@pytest.mark.guarantee("T4")
@pytest.mark.parametrize("path", POST_PATHS)
def test_a_path_that_is_not_exactly_a_pattern_reaches_nobody(door: Door, upstream: Upstream, path: bytes) -> None:
    with door.tunnel() as client:
        client.send(b"POST %b HTTP/1.1\r\nHost: inference.local\r\nContent-Length: 2\r\n\r\n{}" % path)
        answer = client.answer()
        assert answer.status == (400 if path.startswith(b"\\") else 403)
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


MODEL_PATHS = [
    b"/v1/models/.",
    b"/v1/models/./a",
    b"/v1/models/a/./b",
    b"/v1/models/a//b",
    b"/v1/models/a/",
    b"/v1/models/%2e",
    b"/v1/models/%2E%2E/files",
    b"/v1/models/a%2fb",
    b"/v1/models/a%2Fb",
    b"/v1/models/a%5Cb",
    b"/v1/models/a%0db",
    b"/v1/models/a%0Ab",
    b"/v1/models/a%00",
    b"/v1/models/a%7f",
    b"/v1/models/a%23b",
    b"/v1/models/a%3Fb",
    b"/v1/models/a%3bb",
    b"/v1/models/a%252fb",
    b"/v1/models/a%25",
    b"/v1/models/a%2",
    b"/v1/models/a%zz",
    b"/v1/models/a%u002f",
    b"/v1/models/a;b",
    b"/v1/models/a\\b",
    b"/v1/models/a|b",
    b'/v1/models/a"b',
    b"/v1/models/a<b>",
    b"/v1/models/a{b}",
    b"/v1/models//?x",
]


@pytest.mark.guarantee("T5")
@pytest.mark.parametrize("path", MODEL_PATHS)
def test_a_models_path_that_could_be_read_in_two_ways_is_403(door: Door, upstream: Upstream, path: bytes) -> None:
    with door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % path)
        answer = client.answer()
        assert (answer.status, answer.body) == (403, DENIED)
    assert upstream.saw_nothing()


@pytest.mark.guarantee("T5")
@pytest.mark.parametrize(
    "target",
    [b"/v1/models/a#b", b"/v1/models#", b"/v1/models?a#b", b"/v1/models/\xc3\xa9", b"/v1/models/a\tb",
     b"/v1/models/a b"],
)  # fmt: skip
def test_a_fragment_or_a_byte_that_no_target_has_is_400(door: Door, upstream: Upstream, target: bytes) -> None:
    with door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % target)
        assert client.answer().status == 400
    assert upstream.saw_nothing()


@pytest.mark.guarantee("T4", "T5")
@pytest.mark.parametrize(
    "target",
    [b"/v1/models", b"/v1/models?", b"/v1/models??a=/../b", b"/v1/models?a=%2e%2e%00", b"/v1/models/a..b/c~d",
     b"/v1/models/%E4%B8%AD", b"/v1/models/%e4%b8%ad", b"/v1/models/@cf/meta/llama-3!$&'()*+,=:"],
)  # fmt: skip
def test_what_matched_is_what_the_upstream_reads(upstream: Upstream, target: bytes) -> None:
    with Door(candidate(upstream.url)) as door, door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: INFERENCE.local.:443\r\n\r\n" % target)
        peer = upstream.accept()
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += peer.sock.recv(65536)
        assert raw.startswith(b"GET " + target + b" HTTP/1.1\r\nhost: 127.0.0.1:")
        peer.respond()
        assert client.answer().status == 200
