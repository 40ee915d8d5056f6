"""A command and a gateway behind TLS: what is wrong with the connection is said, with its own next step."""

import datetime
from pathlib import Path

import grpc
import pytest
import trustme

from pointsman.rpc.gen import control_pb2
from tests.support.client_commands import run_client
from tests.support.scripted_control import Answer, scripted_control

ANSWERS: dict[str, Answer] = {"ListRoutes": lambda _: control_pb2.ListRoutesResponse()}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def credentials(leaf: trustme.LeafCert, client_authority: trustme.CA | None = None) -> grpc.ServerCredentials:
    chain = b"".join(each.bytes() for each in leaf.cert_chain_pems)
    roots = client_authority.cert_pem.bytes() if client_authority else None
    return grpc.ssl_server_credentials([(leaf.private_key_pem.bytes(), chain)], roots, client_authority is not None)


def listed(leaf: trustme.LeafCert, *options: str, scheme: str = "https", mutual: trustme.CA | None = None) -> str:
    """What `route list` says to a gateway with this certificate; its output when it succeeds."""
    with scripted_control(ANSWERS, credentials(leaf, mutual)) as gateway:
        result = run_client(f"{scheme}://127.0.0.1:{gateway.port}", "route", "list", *options)
    assert result.exit_code == (0 if result.stdout else 1)
    assert result.output.count("\n") == 1
    return result.output


def test_a_certificate_of_the_named_authority_is_trusted_and_another_is_not(
    authority: trustme.CA, trusted: str
) -> None:
    assert listed(authority.issue_cert("127.0.0.1"), "--gateway-ca", trusted).startswith("No routes")
    stranger = trustme.CA().issue_cert("127.0.0.1")
    assert "its certificate is not trusted; give its authority's by --gateway-ca" in listed(
        stranger, "--gateway-ca", trusted
    )
    assert "its certificate is not trusted" in listed(authority.issue_cert("127.0.0.1"))


def test_a_certificate_for_another_name_is_told_from_one_that_expired(authority: trustme.CA, trusted: str) -> None:
    assert "is for another name; name the host that is in it" in listed(
        authority.issue_cert("gateway.example"), "--gateway-ca", trusted
    )
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    expired = authority.issue_cert("127.0.0.1", not_before=past, not_after=past + datetime.timedelta(days=1))
    assert "its certificate has expired; renew it" in listed(expired, "--gateway-ca", trusted)


def test_a_gateway_that_wants_a_certificate_gets_one_and_says_when_it_got_none(
    authority: trustme.CA, trusted: str, tmp_path: Path
) -> None:
    leaf = authority.issue_cert("127.0.0.1")
    mine = authority.issue_cert("operator")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    pair = ("--gateway-cert", str(tmp_path / "cert.pem"), "--gateway-key", str(tmp_path / "key.pem"))
    assert listed(leaf, "--gateway-ca", trusted, *pair, mutual=authority).startswith("No routes")
    assert "cannot reach the gateway at https://127.0.0.1:" in listed(leaf, "--gateway-ca", trusted, mutual=authority)
    mixed = ("--gateway-cert", str(tmp_path / "key.pem"), "--gateway-key", str(tmp_path / "key.pem"))
    assert "cannot be used; check that they are PEM and belong together" in listed(
        leaf, "--gateway-ca", trusted, *mixed, mutual=authority
    )


def test_plain_text_and_tls_that_meet_are_told_apart(authority: trustme.CA, trusted: str) -> None:
    assert "it may speak TLS, write https://" in listed(authority.issue_cert("127.0.0.1"), scheme="http")
    with scripted_control(ANSWERS) as gateway:
        result = run_client(f"https://127.0.0.1:{gateway.port}", "route", "list", "--gateway-ca", trusted)
    assert "it does not speak TLS there; write http://" in result.stderr


def test_plain_text_to_another_machine_and_files_that_are_no_pem_are_refused(tmp_path: Path) -> None:
    far = run_client("http://192.0.2.1:8782", "route", "list")
    assert (far.exit_code, "plain text to another machine" in far.stderr) == (2, True)
    (tmp_path / "rubbish.pem").write_text("rubbish")
    options = ("--gateway-ca", str(tmp_path / "rubbish.pem"))
    rubbish = run_client("https://127.0.0.1:1", "route", "list", *options)
    assert (rubbish.exit_code, "rubbish.pem: is no PEM file" in rubbish.stderr) == (1, True)
