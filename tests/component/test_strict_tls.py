"""TLS inside the tunnel, asked by the openssl command and by hand-cut bytes; and the certificates behind it."""

import gc
import ssl
import struct
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pointsman.proxy.client_connection import ClientConnection
from pointsman.sandbox.authority import CertificateAuthority
from pointsman.testing import FakeClock
from tests.support.door import Door, candidate
from tests.support.raw_client import GET_MODELS, RawClient
from tests.support.upstream import Upstream

CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
HOUR = 3600.0


def s_client(door: Door, directory: Path, *options: str, send: bytes = b"") -> tuple[int, str]:
    """Exit status and everything that `openssl s_client` says, through the proxy."""
    authority = door.write_ca(directory)
    command = [
        "openssl",
        "s_client",
        "-proxy",
        f"127.0.0.1:{door.tunnel_address[1]}",
        "-connect",
        "inference.local:443",
    ]
    finished = subprocess.run(
        [*command, "-CAfile", str(authority), "-verify_return_error", *options],
        input=send,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return finished.returncode, (finished.stdout + finished.stderr).decode(errors="replace")


NAMED = ("-servername", "inference.local")
OLD = ("-cipher", "ALL:COMPLEMENTOFALL@SECLEVEL=0")


@pytest.mark.guarantee("T8")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("-tls1_3",), 0, "TLSv1.3"),
        (("-tls1_2",), 0, "TLSv1.2"),
        (("-tls1_1", *OLD), 1, "alert protocol version"),
        (("-tls1", *OLD), 1, "alert protocol version"),
        (("-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"), 1, "alert handshake failure"),
        (("-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA:@SECLEVEL=0", "-comp"), 0, "Compression: NONE"),
        (("-alpn", "http/1.1,h2"), 0, "ALPN protocol: http/1.1"),
        (("-alpn", "h2"), 0, "No ALPN negotiated"),
        ((), 0, "Verify return code: 0 (ok)"),
    ],
)
def test_openssl_agrees_on_versions_and_protocols(
    door: Door, tmp_path: Path, options: tuple[str, ...], status: int, said: str
) -> None:
    code, text = s_client(door, tmp_path, *NAMED, *options)
    assert (code, said in text) == (status, True), text


@pytest.mark.guarantee("T8")
def test_a_connection_is_not_renegotiated(door: Door, tmp_path: Path) -> None:
    code, text = s_client(door, tmp_path, *NAMED, "-tls1_2", send=b"R\n")
    assert code == 1
    assert "RENEGOTIATING" in text
    assert "no renegotiation" in text


@pytest.mark.guarantee("T8")
def test_a_client_that_speaks_http_2_all_the_same_is_told_400(door: Door, upstream: Upstream) -> None:
    context = door.client_context()
    context.set_alpn_protocols(["h2"])
    with door.connect() as client:
        client.send(CONNECT)
        client.read_until(b"\r\n\r\n")
        client.start_tls(context, "inference.local")
        assert isinstance(client.sock, ssl.SSLSocket)
        assert client.sock.selected_alpn_protocol() is None
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert client.answer().status == 400
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


@pytest.mark.guarantee("T7")
@pytest.mark.parametrize(
    "options",
    [
        ("-noservername",),
        ("-servername", "example.com"),
        ("-servername", "a.inference.local"),
        ("-servername", "inference.local.evil"),
        ("-servername", "inference.local.."),
        ("-servername", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_no_certificate_is_shown_for_another_name(
    door: Door, tmp_path: Path, options: tuple[str, ...], version: str
) -> None:
    code, text = s_client(door, tmp_path, *options, version)
    assert code == 1
    assert "alert number 112" in text
    assert "BEGIN CERTIFICATE" not in text


@pytest.mark.guarantee("T7")
@pytest.mark.parametrize("name", ["INFERENCE.Local", "inference.local."])
def test_the_doors_name_is_known_in_every_spelling_that_connect_knows(door: Door, tmp_path: Path, name: str) -> None:
    code, text = s_client(door, tmp_path, "-servername", name)
    assert code == 0, text
    assert "subject=CN = inference.local" in text


def client_hello(context: ssl.SSLContext) -> bytes:
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname="inference.local")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def with_name(hello: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The same ClientHello with its server name changed and moved behind all other extensions."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2], "big")
    at += 1 + hello[at]
    extensions, position, names = b"", at + 2, b""
    while position < len(hello):
        kind, size = struct.unpack_from(">HH", hello, position)
        each = hello[position : position + 4 + size]
        if kind == 0:
            names = each
        else:
            extensions += each
        position += 4 + size
    extensions += change(names)
    body = hello[9:at] + len(extensions).to_bytes(2, "big") + extensions
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake


@pytest.mark.guarantee("T6", "T7")
@pytest.mark.parametrize("pieces", ["whole", "glued", "bytes"])
@pytest.mark.parametrize("right", [True, False])
def test_a_name_behind_the_first_kilobyte_is_read_and_so_is_a_wrong_one(door: Door, pieces: str, right: bool) -> None:
    context = door.client_context()
    context.set_alpn_protocols([f"{'x' * 200}{number}" for number in range(20)] + ["http/1.1"])
    hello = with_name(client_hello(context), lambda name: name if right else name.replace(b"local", b"lokal"))
    assert hello.index(b"inference.") > 1024
    with door.connect() as client:
        if pieces == "glued":
            client.send(CONNECT + hello)
        else:
            client.send(CONNECT)
            for part in [hello] if pieces == "whole" else [hello[at : at + 1] for at in range(len(hello))]:
                client.send(part)
        client.read_until(b"\r\n\r\n")
        record = client.read_exactly(7)
    # A handshake record, or the alert unrecognized_name.
    assert record[0] == (0x16 if right else 0x15)
    assert right or record[6] == 112


# CPython itself notes a name beyond ASCII on standard error, escaped, before it sends the alert.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.guarantee("T7")
@pytest.mark.parametrize(
    "name",
    [b"\xff" * 15, b"inference\x00local", b"inference.loca\x00", b"inference.loc\xc3\xa4"],
    ids=["no text", "a NUL", "a NUL at the end", "beyond ASCII"],
)
def test_a_name_that_is_no_name_ends_in_an_alert(door: Door, name: bytes) -> None:
    hello = with_name(
        client_hello(door.client_context()), lambda own: own.replace(b"inference.local", name.ljust(15, b"x")[:15])
    )
    with door.connect() as client:
        client.send(CONNECT + hello)
        client.read_until(b"\r\n\r\n")
        assert client.read_to_end()[:1] == b"\x15"


@pytest.mark.guarantee("T7")
def test_failed_handshakes_leave_nothing_behind(door: Door, upstream: Upstream) -> None:
    def connections() -> int:
        gc.collect()
        return sum(isinstance(each, ClientConnection) for each in gc.get_objects())

    before = connections()
    context = ssl.create_default_context()
    for _ in range(20):
        with door.connect() as client:
            client.send(CONNECT)
            client.read_until(b"\r\n\r\n")
            with pytest.raises(ssl.SSLError):
                client.start_tls(context, "example.com")
        with door.connect() as client:
            client.send(CONNECT)
            client.read_until(b"\r\n\r\n")
    with door.tunnel() as client:
        client.send(GET_MODELS)
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        deadline = time.monotonic() + 10
        while connections() > before + 1:
            assert time.monotonic() < deadline


def leaf_of(door: Door) -> x509.Certificate:
    with door.tunnel() as client:
        assert isinstance(client.sock, ssl.SSLSocket)
        der = client.sock.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


@pytest.mark.guarantee("T9", "T7")
def test_the_leaf_is_short_lived_backdated_and_for_one_name(door: Door, tmp_path: Path) -> None:
    leaf = leaf_of(door)
    now = datetime.now(UTC)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(names) == [x509.DNSName("inference.local")]
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    assert timedelta(minutes=55) < now - begin < timedelta(hours=2)
    assert timedelta(hours=24) < end - now <= timedelta(hours=48)
    authority = x509.load_pem_x509_certificate(door.authority.pem)
    assert authority.not_valid_after_utc > end
    assert authority.extensions.get_extension_for_class(x509.NameConstraints).critical
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).critical


@pytest.mark.guarantee("T9")
@pytest.mark.parametrize(("name", "valid"), [("inference.local", True), ("example.com", False)])
def test_what_the_authority_signs_for_another_name_is_worth_nothing(tmp_path: Path, name: str, valid: bool) -> None:
    authority = CertificateAuthority(time.time)
    issuer = x509.load_pem_x509_certificate(authority.pem)
    now = datetime.now(UTC)
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        .sign(authority._key, hashes.SHA256())
    )
    files = authority.write(tmp_path, {})
    path = tmp_path / "forged.pem"
    path.write_bytes(forged.public_bytes(serialization.Encoding.PEM))
    command = ["openssl", "verify", "-CAfile", str(files.authority), str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (finished.returncode == 0) is valid
    assert valid or "permitted subtree violation" in finished.stderr


@pytest.mark.guarantee("T9")
def test_a_leaf_is_renewed_while_connections_run_and_they_never_notice(upstream: Upstream) -> None:
    clock = FakeClock(time.time() - 30 * HOUR)  # so that every leaf of this test is valid today
    door = Door(candidate(upstream.url))
    door.authority = CertificateAuthority(clock)
    clock.advance(7 * HOUR)
    with door:
        first = leaf_of(door)
        with door.tunnel() as old:
            old.send(GET_MODELS)
            peer = upstream.accept()
            peer.request()
            peer.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a"')
            old.read_until(b'{"a"')
            clock.advance(24 * HOUR - 1)
            assert leaf_of(door) == first
            clock.advance(1)
            second = leaf_of(door)
            assert second != first
            assert second.not_valid_after_utc - first.not_valid_after_utc == timedelta(hours=24)
            assert leaf_of(door) == second
            peer.send(b":123}")
            assert old.read_until(b"0\r\n\r\n").endswith(b":123}\r\n0\r\n\r\n")
            old.send(GET_MODELS)
            peer.request()
            peer.respond()
            assert old.answer().status == 200


def trusting(*doors: Door) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata="".join(door.authority.pem.decode() for door in doors))
    return context


def handshake(door: Door, context: ssl.SSLContext) -> RawClient:
    client = door.connect()
    client.send(CONNECT)
    client.read_until(b"\r\n\r\n")
    try:
        client.start_tls(context, "inference.local")
    except ssl.SSLError:
        client.close()
        raise
    return client


@pytest.mark.guarantee("T10")
def test_two_sandboxes_are_trusted_by_their_own_clients_and_neither_breaks_the_other(upstream: Upstream) -> None:
    with Door(candidate(upstream.url)) as first:
        running = handshake(first, trusting(first))
        with Door(candidate(upstream.url)) as second:
            for own, other in ((first, second), (second, first)):
                handshake(own, trusting(own)).close()
                with pytest.raises(ssl.SSLCertVerificationError):
                    handshake(other, trusting(own))
                # Their authorities have one name; a client that knows both still finds the right one.
                handshake(own, trusting(first, second)).close()
            assert first.authority.pem != second.authority.pem
        with running:
            running.send(GET_MODELS)
            peer = upstream.accept()
            peer.request()
            peer.respond()
            assert running.answer().status == 200
        handshake(first, trusting(first)).close()
