"""TLS towards upstreams: always verified, by name, against the system's store or the route's own bundle."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from pointsman.core.endpoint import Endpoint
from tests.support.door import Door, candidate
from tests.support.raw_client import post
from tests.support.upstream import Upstream


def server_context(authority: trustme.CA, name: str = "localhost", **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **options).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "bundle.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
def secure_upstream(authority: trustme.CA) -> Iterator[Upstream]:
    with Upstream(server_context(authority)) as upstream:
        yield upstream


def test_a_verified_upstream_is_called_and_its_connection_kept(secure_upstream: Upstream, bundle: str) -> None:
    def serve() -> None:
        peer = secure_upstream.accept()
        for _ in range(2):
            peer.request()
            peer.start_events()
            peer.chunk(b"data: 1\n\n")
            peer.end_chunks()

    thread = threading.Thread(target=serve)
    thread.start()
    with Door(candidate(secure_upstream.url, ca_bundle=bundle)) as door, door.tunnel() as client:
        for _ in range(2):
            client.send(post())
            assert client.answer().body == b"data: 1\n\n"
    thread.join()


_PAST = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
REFUSED: dict[str, tuple[str, dict[str, Any], bool]] = {
    "an unknown authority": ("localhost", {}, False),
    "another name": ("example.com", {}, True),
    "an expired certificate": (
        "localhost",
        {"not_before": _PAST - datetime.timedelta(days=30), "not_after": _PAST},
        True,
    ),
}


@pytest.mark.guarantee("U4")
@pytest.mark.parametrize("case", REFUSED)
def test_an_upstream_that_cannot_be_verified_is_503_and_gets_no_byte_of_the_request(
    authority: trustme.CA, bundle: str, case: str
) -> None:
    name, options, known = REFUSED[case]
    received: list[object] = []

    def serve() -> None:
        try:
            received.append(upstream.accept().request())
        except (ssl.SSLError, OSError, AssertionError) as error:
            received.append(error)

    with Upstream(server_context(authority, name, **options)) as upstream:
        thread = threading.Thread(target=serve)
        thread.start()
        with Door(candidate(upstream.url, ca_bundle=bundle if known else "")) as door, door.tunnel() as client:
            client.send(post())
            answer = client.answer()
            assert (answer.status, answer.body) == (503, b'{"error":"inference service unavailable"}')
            assert "certificate verify failed" in door.logged().replace("_", " ").lower()
        thread.join()
    assert isinstance(received[0], Exception)


def test_a_body_that_ends_without_goodbye_is_cut(secure_upstream: Upstream, bundle: str) -> None:
    def serve() -> None:
        peer = secure_upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}")
        peer.close()  # a FIN without TLS's close_notify: anybody on the way could have sent it

    thread = threading.Thread(target=serve)
    thread.start()
    with Door(candidate(secure_upstream.url, ca_bundle=bundle)) as door, door.tunnel() as client:
        client.send(post())
        answer = client.answer()
    thread.join()
    assert (answer.body, answer.complete) == (b"{}", False)


@pytest.mark.guarantee("U5")
def test_key_log_files_are_not_written(
    secure_upstream: Upstream, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(path))

    def serve() -> None:
        peer = secure_upstream.accept()
        peer.request()
        peer.respond()

    thread = threading.Thread(target=serve)
    thread.start()
    with Door(candidate(secure_upstream.url, ca_bundle=bundle)) as door, door.plain() as client:
        client.send(post())
        assert client.answer().status == 200
    thread.join()
    assert not path.exists()


@pytest.mark.guarantee("U5")
def test_proxy_variables_of_the_environment_are_ignored(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    with Upstream() as elsewhere:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
        with Door(candidate(upstream.url)) as door, door.plain() as client:
            client.send(post())
            peer = upstream.accept()
            peer.request()
            peer.respond()
            assert client.answer().status == 200
        assert elsewhere.saw_nothing()


@pytest.mark.guarantee("U2")
@pytest.mark.parametrize("host", ["169.254.169.254", "0.0.0.0", "[::ffff:169.254.169.254]"])
def test_addresses_that_no_route_may_name_are_not_dialled(host: str) -> None:
    endpoint = Endpoint("http", host.strip("[]"), 80, "/v1")
    with Door(candidate("http://localhost/v1", endpoint=endpoint)) as door, door.tunnel() as client:
        client.send(post())
        assert client.answer().status == 503
        assert "no address that may be dialled" in door.logged()


def test_a_name_that_does_not_resolve_is_503() -> None:
    with Door(candidate("http://no-such-host.invalid/v1")) as door, door.tunnel() as client:
        client.send(post())
        assert client.answer().status == 503
        assert "cannot resolve" in door.logged()


def test_a_name_with_several_addresses_is_dialled_until_one_answers(upstream: Upstream) -> None:
    port = upstream.url.rsplit(":", 1)[1]
    with Door(candidate(f"http://localhost:{port}")) as door, door.tunnel() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
