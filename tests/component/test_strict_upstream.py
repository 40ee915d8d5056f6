"""Where a request with a key in it may go, and over which connection."""

import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from pointsman.core.limits import Limits
from tests.support.door import KEY, Door, candidate
from tests.support.name_server import in_own_network
from tests.support.raw_client import GET_MODELS, RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer, begin


def leave_before_the_head(_: RawClient, __: UpstreamPeer) -> None:
    pass


def leave_within_the_body(client: RawClient, peer: UpstreamPeer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    client.read_until(b"{")


def leave_within_the_events(client: RawClient, peer: UpstreamPeer) -> None:
    peer.start_events()
    peer.chunk(b"data: 1\n\n")
    client.read_until(b"data: 1\n\n\r\n")


MOMENTS: dict[str, Callable[[RawClient, UpstreamPeer], None]] = {
    "before the head": leave_before_the_head,
    "within the body": leave_within_the_body,
    "within the events": leave_within_the_events,
}


@pytest.mark.guarantee("U6")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cancelled_exchange_leaves_nothing_for_the_next_client(door: Door, upstream: Upstream, moment: str) -> None:
    with door.tunnel() as first:
        peer = begin(first, upstream)
        MOMENTS[moment](first, peer)
    assert peer.wait_closed()
    with door.tunnel() as second:
        second.send(post(b'{"n":2}'))
        own = upstream.accept()
        assert b'"n":2' in own.request().body
        own.respond(b'{"answer":2}')
        assert second.answer().body == b'{"answer":2}'


@pytest.mark.guarantee("U6")
def test_a_connection_that_timed_out_is_not_lent_again(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        late = begin(client, upstream)
        assert client.answer().status == 503
        assert late.wait_closed()
        client.send(GET_MODELS)
        own = upstream.accept()
        own.request()
        own.respond(b'{"own":1}')
        assert client.answer().body == b'{"own":1}'


@pytest.mark.guarantee("U6")
def test_a_connection_whose_bad_credential_was_told_is_not_lent_again(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 401 X\r\nContent-Length: 100\r\n\r\n{")
        assert client.answer().status == 401
        assert peer.wait_closed()
        client.send(GET_MODELS)
        own = upstream.accept()
        own.request()
        own.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("U1")
@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize("field", [b"Location", b"Refresh", b"Alt-Svc", b"Content-Location"])
def test_the_key_goes_to_its_origin_whatever_an_answer_points_to(
    door: Door, upstream: Upstream, status: int, field: bytes
) -> None:
    with Upstream() as elsewhere, door.tunnel() as client:
        target = elsewhere.url.encode()
        for number in range(2):
            client.send(post())
            if number == 0:
                peer = upstream.accept()
            assert peer.request().value(b"authorization") == b"Bearer " + KEY.encode()
            peer.send(b"HTTP/1.1 %d X\r\n%b: %b\r\nContent-Length: 0\r\n\r\n" % (status, field, target))
            answer = client.answer()
            assert (answer.status, answer.value(field.lower())) == (status, target)
        assert elsewhere.saw_nothing()


@pytest.mark.guarantee("U1")
def test_each_key_goes_to_the_origin_it_was_configured_for(upstream: Upstream) -> None:
    with Upstream() as other:
        routes = (
            candidate(upstream.url, protocols=("openai_chat_completions",), api_key=None),
            candidate(other.url, protocols=("anthropic_messages",)),
        )
        with Door(*routes) as door, door.tunnel() as client:
            for path, target, key in (
                (b"/v1/chat/completions", upstream, None),
                (b"/v1/messages", other, b"Bearer " + KEY.encode()),
            ):
                client.send(post(b'{"base_url":"%b"}' % other.url.encode(), path=path))
                peer = target.accept()
                assert peer.request().value(b"authorization") == key
                peer.respond()
                assert client.answer().status == 200


@pytest.mark.guarantee("U5")
def test_nothing_in_the_environment_redirects_or_adds_credentials(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = "machine 127.0.0.1 login canary-login password canary-password\n"
    for name in (".netrc", "_netrc"):
        (tmp_path / name).write_text(netrc)
        (tmp_path / name).chmod(0o600)
    with Upstream() as elsewhere:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("OPENAI_BASE_URL", elsewhere.url)
        monkeypatch.setenv("OPENAI_API_KEY", "canary-password")
        with Door(candidate(upstream.url, api_key=None)) as door, door.tunnel() as client:
            client.send(post())
            peer = upstream.accept()
            request = peer.request()
            peer.respond()
            assert client.answer().status == 200
        assert request.value(b"authorization") is None
        assert elsewhere.saw_nothing()


def refuse(certificate: trustme.LeafCert, seen: list[bytes], listener: Upstream) -> None:
    """Shake hands as far as the client lets us, and note what it says in clear inside TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    sock = listener.accept().sock
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    shaken = False
    while True:
        try:
            if not shaken:
                tls.do_handshake()
                shaken = True
            seen.append(tls.read())
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            data = sock.recv(65536)
            if not data:
                return
            incoming.write(data)
        except (ssl.SSLError, OSError):
            return


@pytest.mark.guarantee("U4")
@pytest.mark.parametrize("kind", ["self-signed", "another name", "an address for a name", "an e-mail address"])
def test_no_byte_is_sent_inside_tls_that_was_not_verified(tmp_path: Path, kind: str) -> None:
    known, unknown = trustme.CA(), trustme.CA()
    certificate = {
        "self-signed": unknown.issue_cert("localhost"),
        "another name": known.issue_cert("localhost.evil.example", "*.localhost"),
        "an address for a name": known.issue_cert("127.0.0.1"),
        "an e-mail address": known.issue_cert("someone@localhost"),
    }[kind]
    bundle = tmp_path / "bundle.pem"
    known.cert_pem.write_to_path(bundle)
    seen: list[bytes] = []
    with Upstream() as upstream:
        url = upstream.url.replace("http://127.0.0.1", "https://localhost")
        thread = threading.Thread(target=refuse, args=(certificate, seen, upstream))
        thread.start()
        with Door(candidate(url, ca_bundle=str(bundle))) as door, door.tunnel() as client:
            client.send(post())
            answer = client.answer()
        thread.join(15)
    assert (answer.status, answer.body) == (503, b'{"error":"inference service unavailable"}')
    assert b"".join(seen) == b""


@pytest.mark.guarantee("U7", "R11")
@pytest.mark.parametrize("leaves", [False, True])
def test_a_tls_handshake_that_never_ends_has_its_time_and_its_client(
    upstream: Upstream, quick_limits: Limits, leaves: bool
) -> None:
    url = upstream.url.replace("http://127.0.0.1", "https://localhost")
    limits = replace(quick_limits, connect_seconds=30.0) if leaves else quick_limits
    with Door(candidate(url), limits=limits) as door, door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        assert peer.sock.recv(1) == b"\x16"
        if leaves:
            client.reset()
        else:
            assert client.answer().status == 503
        assert peer.wait_closed(1.0)


@pytest.mark.guarantee("U8")
@pytest.mark.parametrize("base", ["/v1", "/a/b/v1", "/a%20b", "/x,y", ""])
@pytest.mark.parametrize(
    "path",
    [b"/v1/models/..", b"/v1/models/%2e%2e/x", b"/v1/models/..%2f..%2fadmin", b"/v1/models/a/../../../x",
     b"/v1/models/.%2e/x", b"/v1/models/%252e%252e/x", b"/v1/models/a\\..\\x", b"/v1/models/a%5c..%5cx",
     b"//v1/models"],
)  # fmt: skip
def test_no_request_climbs_out_of_the_base_path(upstream: Upstream, base: str, path: bytes) -> None:
    url = upstream.url.removesuffix("/v1") + base
    with Door(candidate(url)) as door, door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % path)
        assert client.answer().status == 403
    assert upstream.saw_nothing()


@pytest.mark.guarantee("U8")
@pytest.mark.parametrize(
    "path", [b"/v1/models/...", b"/v1/models/.hidden", b"/v1/models/a..b", b"/v1/models/a%20b?x=/../y"]
)
def test_what_only_looks_like_climbing_arrives_byte_for_byte(upstream: Upstream, path: bytes) -> None:
    with Door(candidate(upstream.url.removesuffix("/v1") + "/base/v1")) as door, door.tunnel() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % path)
        peer = upstream.accept()
        assert peer.request().line == b"GET /base%b HTTP/1.1" % path
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("U3", "U2")
def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    result = in_own_network("rebinding", [])
    assert result["seen"] == [[200, "flips.example"], [503, ""], [200, "mixed.example"]]
    assert result["metadata connections"] == 0
    assert result["asked"] == ["flips.example", "mixed.example"]
