"""The door itself: CONNECT, TLS, patterns, the error table (DESIGN section 8)."""

import json
import socket
import ssl

import pytest
from cryptography import x509

from pointsman.core.candidate import Bundle
from tests.support.door import Door, candidate
from tests.support.raw_client import GET_MODELS, RawClient, post
from tests.support.upstream import Upstream

CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
DENIED = b'{"error":"connection not allowed by policy"}'


@pytest.mark.guarantee("T1")
@pytest.mark.parametrize(
    "authority",
    [b"inference.local:443", b"INFERENCE.Local:443", b"inference.local.:443"],
)
def test_the_door_opens_for_its_name(door: Door, authority: bytes) -> None:
    with door.connect() as client:
        client.send(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (authority, authority))
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 200 Connection Established\r\n\r\n"


@pytest.mark.guarantee("T1")
@pytest.mark.parametrize(
    "authority",
    [
        b"example.com:443",
        b"inference.local:80",
        b"inference.local:0443",
        b"inference.local:",
        b"inference.local",
        b"a@inference.local:443",
        b"[::1]:443",
        b"127.0.0.1:443",
        b"inference.local.evil:443",
        b"inference.local..:443",
        b"inference%2elocal:443",
        b"xinference.local:443",
        b"https://inference.local/",
        b"/",
    ],
)
def test_connect_elsewhere_is_403_and_the_connection_ends(door: Door, authority: bytes) -> None:
    with door.connect() as client:
        client.send(b"CONNECT %b HTTP/1.1\r\nHost: x\r\n\r\n" % authority)
        answer = client.answer()
        assert (answer.status, answer.body) == (403, DENIED)
        assert client.read_to_end() == b""


@pytest.mark.guarantee("T2")
@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"HEAD", b"PATCH", b"TRACE"])
@pytest.mark.parametrize("target", [b"/v1/models", b"http://inference.local/v1/models", b"https://example.com/", b"*"])
def test_anything_but_connect_is_403(door: Door, method: bytes, target: bytes) -> None:
    with door.connect() as client:
        client.send(b"%b %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % (method, target))
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 403 ")
        assert client.read_to_end() == (b"" if method == b"HEAD" else DENIED)


@pytest.mark.guarantee("T3")
@pytest.mark.parametrize(
    "data",
    [
        CONNECT.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"),
        CONNECT.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
        CONNECT.replace(b"\r\n", b"\n"),
        b"CONNECT inference.local:443\r\n\r\n",
        b"CONNECT  inference.local:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x05\x01\x00",
    ],
)
def test_a_malformed_connect_is_400(door: Door, data: bytes) -> None:
    with door.connect() as client:
        client.send(data)
        assert client.answer().status == 400


@pytest.mark.limit("connect_head_bytes")
@pytest.mark.parametrize("size", [8192, 8193])
def test_a_connect_head_may_have_8_kib(door: Door, size: int) -> None:
    filler = size - len(CONNECT) - len(b"X-A: \r\n")
    with door.connect() as client:
        client.send(CONNECT[:-2] + b"X-A: " + b"a" * filler + b"\r\n\r\n")
        status = client.read_until(b"\r\n\r\n").split(b" ")[1]
    assert status == (b"431" if size > 8192 else b"200")


class MemoryTls:
    """A TLS client over memory, so that a test decides how its bytes are cut."""

    def __init__(self, context: ssl.SSLContext, name: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def finish(self, client: RawClient) -> None:
        self.incoming.write(client.buffer)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.incoming.write(client.sock.recv(65536))
        client.send(self.outgoing.read())

    def exchange(self, client: RawClient, data: bytes, end: bytes) -> bytes:
        self.tls.write(data)
        client.send(self.outgoing.read())
        received = b""
        while end not in received:
            self.incoming.write(client.sock.recv(65536))
            while self.incoming.pending:
                try:
                    received += self.tls.read()
                except ssl.SSLWantReadError:
                    break
        return received


@pytest.mark.guarantee("T6")
def test_a_hello_glued_to_connect_works(door: Door) -> None:
    tls = MemoryTls(door.client_context(), "inference.local")
    with door.connect() as client:
        client.send(CONNECT + tls.hello())
        client.read_until(b"Established\r\n\r\n")
        tls.finish(client)
        assert tls.exchange(client, b"GET /x HTTP/1.1\r\nHost: inference.local\r\n\r\n", DENIED)


@pytest.mark.guarantee("T6")
def test_a_handshake_byte_by_byte_works(door: Door) -> None:
    tls = MemoryTls(door.client_context(), "inference.local")
    with door.connect() as client:
        for byte in CONNECT + tls.hello():
            client.send(bytes([byte]))
        client.read_until(b"Established\r\n\r\n")
        tls.finish(client)
        assert tls.exchange(client, b"GET /x HTTP/1.1\r\nHost: inference.local\r\n\r\n", DENIED)


@pytest.mark.guarantee("T7")
@pytest.mark.parametrize("name", ["example.com", "xinference.local", None])
def test_tls_for_another_name_is_refused(door: Door, name: str | None) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with door.connect() as client:
        client.send(CONNECT)
        client.read_until(b"\r\n\r\n")
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            context.wrap_socket(client.sock, server_hostname=name)


@pytest.mark.guarantee("T8")
def test_old_tls_versions_are_refused_and_the_protocol_is_http_1_1(door: Door) -> None:
    context = door.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with door.connect() as client:
        client.send(CONNECT)
        client.read_until(b"\r\n\r\n")
        client.start_tls(context, "inference.local")
        assert isinstance(client.sock, ssl.SSLSocket)
        assert client.sock.selected_alpn_protocol() == "http/1.1"
        assert client.sock.version() == "TLSv1.3"


@pytest.mark.guarantee("T9")
def test_the_authority_may_sign_for_the_door_alone(door: Door) -> None:
    certificate = x509.load_pem_x509_certificate(door.authority.pem)
    constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert constraints.permitted_subtrees == [x509.DNSName("inference.local")]
    assert (basic.ca, basic.path_length) == (True, 0)


@pytest.mark.guarantee("F12", "F14")
@pytest.mark.guarantee("T4", "T5")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        (b"GET", b"/v1/chat/completions"),
        (b"POST", b"/v1/models"),
        (b"post", b"/v1/chat/completions"),
        (b"POST", b"/v1/chat/completions/"),
        (b"POST", b"/V1/chat/completions"),
        (b"POST", b"//v1/chat/completions"),
        (b"POST", b"/v1/../v1/chat/completions"),
        (b"POST", b"/v1/./chat/completions"),
        (b"POST", b"/v1/chat%2fcompletions"),
        (b"POST", b"/v1/chat/completions%00"),
        (b"POST", b"/v1/chat\\completions"),
        (b"POST", b"/v1/chat/completions;x"),
        (b"POST", b"/v1/embeddings"),
        (b"GET", b"/v1/models/"),
        (b"GET", b"/v1/models/../files"),
        (b"GET", b"/v1/models/a/.."),
        (b"GET", b"/v1/models/..%2ffiles"),
        (b"GET", b"/v1/models/%2e%2e/files"),
        (b"GET", b"/v1/models/a%0d%0ab"),
        (b"GET", b"/v1/models//a"),
        (b"GET", b"/v1/models/a%"),
        (b"GET", b"/"),
        (b"DELETE", b"/v1/models/a"),
        (b"POST", b"/v1/files"),
    ],
)
def test_what_matches_no_pattern_is_403_and_the_connection_ends(
    door: Door, upstream: Upstream, method: bytes, path: bytes
) -> None:
    with door.tunnel() as client:
        client.send(b"%b %b HTTP/1.1\r\nHost: inference.local\r\nContent-Length: 2\r\n\r\n{}" % (method, path))
        answer = client.answer()
        assert (answer.status, answer.body) == (403, DENIED)
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


@pytest.mark.guarantee("T5")
@pytest.mark.parametrize("path", [b"/v1/models/gpt-4.1", b"/v1/models/a/b", b"/v1/models/a%20b:c@d", b"/v1/models?x=1"])
def test_models_match_at_any_depth(door: Door, upstream: Upstream, path: bytes) -> None:
    with door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % path)
        peer = upstream.accept()
        assert peer.request().line == b"GET %b HTTP/1.1" % path
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("F10")
@pytest.mark.parametrize(
    "host", [b"example.com", b"inference.local:80", b"inference.local.evil", b"localhost", b"inference.local:0443"]
)
def test_another_host_inside_the_tunnel_is_400(door: Door, upstream: Upstream, host: bytes) -> None:
    with door.tunnel() as client:
        client.send(GET_MODELS.replace(b"Host: inference.local", b"Host: " + host))
        assert client.answer().status == 400
    assert upstream.saw_nothing()


@pytest.mark.guarantee("F11")
@pytest.mark.parametrize(
    "target",
    [b"http://inference.local/v1/models", b"https://other/v1/models", b"*", b"inference.local:443", b"v1/models"],
)
def test_another_form_or_authority_of_target_is_400(door: Door, upstream: Upstream, target: bytes) -> None:
    with door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % target)
        assert client.answer().status == 400
    assert upstream.saw_nothing()


def test_embeddings_match_where_a_route_lists_them(upstream: Upstream) -> None:
    route = candidate(upstream.url, protocols=("openai_embeddings",))
    with Door(route) as door, door.tunnel() as client:
        client.send(post(path=b"/v1/embeddings"))
        peer = upstream.accept()
        assert peer.request().line.startswith(b"POST /v1/embeddings ")
        peer.respond()
        assert client.answer().status == 200


def test_count_tokens_matches_where_a_route_lists_messages(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post(path=b"/v1/messages/count_tokens"))
        peer = upstream.accept()
        assert peer.request().line.startswith(b"POST /v1/messages/count_tokens ")
        peer.respond()
        assert client.answer().status == 200


def test_no_routes_is_503_with_a_hint_and_the_connection_stays() -> None:
    with Door(bundle=Bundle()) as door, door.tunnel() as client:
        for _ in range(2):
            client.send(post())
            answer = client.answer()
            assert answer.status == 503
            content = json.loads(answer.body)
            assert content["error"] == "inference is not configured"
            assert "pointsman sandbox routes check" in content["hint"]
            assert "pointsman inference set" in content["hint"]


def test_no_candidate_for_the_dialect_is_400_and_the_connection_stays(upstream: Upstream) -> None:
    with Door(candidate(upstream.url, protocols=("anthropic_messages",))) as door, door.tunnel() as client:
        for _ in range(2):
            client.send(post())
            answer = client.answer()
            assert (answer.status, answer.body) == (400, b'{"error":"no compatible inference route available"}')


def test_the_first_candidate_that_speaks_the_dialect_is_called(upstream: Upstream) -> None:
    with Upstream() as other:
        first = candidate(other.url, protocols=("anthropic_messages",))
        second = candidate(upstream.url, model="second")
        third = candidate(other.url, model="third")
        with Door(first, second, third) as door, door.tunnel() as client:
            client.send(post())
            peer = upstream.accept()
            assert peer.request().body == b'{"model":"second"}'
            peer.respond()
            assert client.answer().value(b"x-pointsman-model") == b"second"
        assert other.saw_nothing()


@pytest.mark.guarantee("K1")
def test_an_upstream_that_cannot_be_reached_is_503_and_its_address_stays_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Door(candidate(f"http://127.0.0.1:{port}/v1")) as door, door.tunnel() as client:
        client.send(post())
        answer = client.answer()
        assert (answer.status, answer.body) == (503, b'{"error":"inference service unavailable"}')
        assert answer.value(b"x-pointsman-route") == b"inference.local"
        assert str(port).encode() not in b"".join(name + value for name, value in answer.fields)
        assert str(port) in door.logged()


@pytest.mark.guarantee("F14", "F15")
def test_too_large_a_body_is_413_before_it_is_read(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post()[:-2].replace(b"Content-Length: 2", b"Content-Length: 10485761"))
        answer = client.answer()
        assert (answer.status, answer.body) == (413, b'{"error":"payload too large"}')
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


@pytest.mark.guarantee("F15")
def test_a_body_of_10_mib_passes(door: Door, upstream: Upstream) -> None:
    body = b'{"model":"x","a":"' + b"b" * (10 * 1024 * 1024 - 20) + b'"}'
    with door.tunnel() as client:
        client.send(post(body))
        peer = upstream.accept()
        assert len(peer.request().body) == len(body) + len("real-model") - 1
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("F16")
def test_continue_is_sent_when_the_head_has_passed_and_not_before(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        request = post(fields=b"Expect: 100-continue\r\n")
        client.send(request[:-2])
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(request[-2:])
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        client.send(post(path=b"/v1/other", fields=b"Expect: 100-continue\r\n")[:-2])
        assert client.answer().status == 403


@pytest.mark.guarantee("J7")
def test_an_encoded_request_is_415(door: Door) -> None:
    with door.tunnel() as client:
        client.send(post(fields=b"Content-Encoding: gzip\r\n"))
        assert client.answer().status == 415
