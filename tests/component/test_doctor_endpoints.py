"""Reaching the hosts of a route file: real sockets, real TLS, one typed failure for each way it goes wrong."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.sandbox.doctor.endpoints import Failure, Reach, reach_all
from tests.support.door import KEY, candidate


@contextlib.contextmanager
def server(context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """Accepts connections, makes the handshake if it has a context, and keeps what it is sent inside."""
    heard: list[bytes] = []
    # The last connection is known by its address: when it is accepted, all before it have been heard.
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as last:
        last.bind(("127.0.0.1", 0))
        end = last.getsockname()

        def serve() -> None:
            while True:
                connection, address = listener.accept()
                if address == end:
                    connection.close()
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(20)
                    if context is None:
                        heard.append(connection.recv(4096))
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        continue
                    with context.wrap_socket(connection, server_side=True) as tls:
                        heard.append(tls.recv(4096))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            last.connect(listener.getsockname())
            thread.join(10)


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


def reach(*candidates: Candidate, seconds: float = 20) -> list[Reach]:
    found = asyncio.run(reach_all(candidates, seconds))
    assert KEY not in repr(found)
    return found


def failure(*candidates: Candidate, seconds: float = 20) -> Failure | None:
    (found,) = reach(*candidates, seconds=seconds)
    assert bool(found.mend) is (found.failure is not None)
    return found.failure


def test_a_verified_host_is_reached_and_sent_neither_key_nor_request(authority: trustme.CA, tmp_path: Path) -> None:
    with server(server_context(authority.issue_cert("localhost"))) as (port, heard):
        assert failure(candidate(f"https://localhost:{port}/v1", ca_bundle=str(tmp_path / "ca.pem"))) is None
    assert heard == [b""]


def test_a_host_in_clear_text_is_reached_and_sent_nothing() -> None:
    with server() as (port, heard):
        assert failure(candidate(f"http://127.0.0.1:{port}/v1")) is None
    assert heard == [b""]


def test_each_host_is_dialled_once_and_names_all_of_its_routes() -> None:
    with server() as (port, heard):
        url = f"http://127.0.0.1:{port}"
        found = reach(candidate(f"{url}/v1", model="a"), candidate(f"{url}/v2", model="b"), candidate("mock://x"))
    assert [each.routes for each in found] == [("inference.local (a)", "inference.local (b)")]
    assert len(heard) == 1


def test_a_private_authority_asks_for_a_ca_bundle(authority: trustme.CA) -> None:
    with server(server_context(authority.issue_cert("localhost"))) as (port, _):
        (found,) = reach(candidate(f"https://localhost:{port}/v1"))
    assert found.failure is Failure.UNTRUSTED
    assert found.mend.startswith("add ca_bundle:")


def test_a_certificate_for_another_name_is_told_apart(authority: trustme.CA, tmp_path: Path) -> None:
    bundle = str(tmp_path / "ca.pem")
    with server(server_context(authority.issue_cert("other.example"))) as (port, _):
        assert failure(candidate(f"https://localhost:{port}/v1", ca_bundle=bundle)) is Failure.WRONG_NAME
        assert failure(candidate(f"https://127.0.0.1:{port}/v1", ca_bundle=bundle)) is Failure.WRONG_NAME


def test_an_expired_certificate_is_told_apart(authority: trustme.CA, tmp_path: Path) -> None:
    expired = authority.issue_cert("localhost", not_after=datetime.now(UTC) - timedelta(days=1))
    with server(server_context(expired)) as (port, _):
        url = f"https://localhost:{port}/v1"
        assert failure(candidate(url, ca_bundle=str(tmp_path / "ca.pem"))) is Failure.EXPIRED


def test_a_server_that_speaks_no_tls_is_told_apart() -> None:
    with server() as (port, _):
        assert failure(candidate(f"https://127.0.0.1:{port}/v1")) is Failure.NO_TLS


def test_a_server_that_never_answers_the_handshake_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        assert failure(candidate(url), seconds=0.3) is Failure.TIMED_OUT


def test_a_port_where_nothing_listens_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure(candidate(f"http://127.0.0.1:{port}/v1")) is Failure.REFUSED


def test_a_metadata_address_is_not_even_dialled() -> None:
    forbidden = candidate("http://localhost/v1")
    forbidden = Candidate(forbidden.route, Endpoint("http", "169.254.169.254", 80, ""), "m", forbidden.protocols)
    assert failure(forbidden) is Failure.FORBIDDEN_ADDRESS


def test_a_name_that_cannot_exist_is_unknown() -> None:
    # Longer than a label may be: refused before any name server is asked.
    name = Candidate("inference.local", Endpoint("http", "x" * 64 + ".example", 80, ""), "m", ("model_discovery",))
    assert failure(name) is Failure.UNKNOWN_NAME


def test_a_bundle_without_a_certificate_is_told_apart(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with server() as (port, _):
        assert failure(candidate(f"https://127.0.0.1:{port}/v1", ca_bundle=str(empty))) is Failure.CA_BUNDLE
