"""Which settings go together: listeners that others can reach, TLS, and what is asked of callers."""

import os
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pointsman.config.problems import SettingsError
from pointsman.config.settings import Settings, load_settings
from pointsman.config.tls_files import Tls

HOME = {"HOME": "/home/op"}


def load(**options: str) -> Settings:
    return load_settings(None, HOME, {key.replace("__", "."): value for key, value in options.items()})


def told(**options: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(**options)
    return str(caught.value).splitlines()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    """Options for TLS with good files."""
    leaf = authority.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "key.pem").chmod(0o600)
    return {"tls__cert": f"{tmp_path}/cert.pem", "tls__key": f"{tmp_path}/key.pem"}


@pytest.mark.guarantee("G2")
@pytest.mark.parametrize("listener", ["data", "control", "grpc"])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "[2001:db8::1]"])
def test_a_listener_that_others_can_reach_needs_tls(listener: str, host: str, files: dict[str, str]) -> None:
    option = {f"listen__{listener}": f"{host}:1"}
    (line,) = told(**option)
    assert line.startswith(f"--listen-{listener}: listen.{listener} {host}:1 can be reached from other machines, ")
    assert line.endswith("there is no TLS; set tls.cert and tls.key, or listen on 127.0.0.1")
    assert load(**option, **files).tls is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.0.9", "localhost", "LOCALHOST", "[::1]", "[0:0::1]"])
def test_a_loopback_listener_needs_none(host: str) -> None:
    settings = load(listen__data=f"{host}:1", listen__control=f"{host}:2", listen__grpc=f"{host}:3")
    assert all(each.is_loopback for each in (settings.listen.data, settings.listen.control, settings.listen.grpc))


def test_localhost_is_never_looked_up() -> None:
    assert str(load(listen__data="localhost:5").listen.data) == "127.0.0.1:5"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8780", "is not HOST:PORT"),
        (":8780", "is not HOST:PORT"),
        ("127.0.0.1", "is not HOST:PORT"),
        ("127.0.0.1:", "is not HOST:PORT"),
        ("127.0.0.1:http", "is not HOST:PORT"),
        ("127.0.0.1:-1", "is not HOST:PORT"),
        ("127.0.0.1:٣", "is not HOST:PORT"),
        ("127.0.0.1:65536", "has a port beyond 65535"),
        ("::1:8780", "needs brackets"),
        ("[127.0.0.1]:8780", "needs brackets"),
        ("127.1:8780", "has a name or a broken address"),
        ("0177.0.0.1:8780", "has a name or a broken address"),
        ("*:8780", "has a name or a broken address"),
        ("example.com:8780", "has a name or a broken address"),
        ("localhost.example.com:8780", "has a name or a broken address"),
        ("[::1%lo]:8780", "has an address with a zone"),
        ("[::ffff:127.0.0.1]:8780", "has an IPv4 address in IPv6 spelling"),
        ("http://127.0.0.1:8780", "needs brackets"),
    ],
)
def test_what_is_no_address_is_refused(text: str, reason: str) -> None:
    (line,) = told(listen__data=text)
    assert line.startswith(f"--listen-data: listen.data {reason}")
    assert "for example 127.0.0.1:8780" in line


def test_the_highest_port_and_port_0_are_fine() -> None:
    settings = load(listen__data="127.0.0.1:0", listen__control="127.0.0.1:0", listen__grpc="127.0.0.1:65535")
    assert (settings.listen.control.port, settings.listen.grpc.port) == (0, 65535)


@pytest.mark.parametrize(
    ("data", "grpc"),
    [
        ("127.0.0.1:9", "127.0.0.1:9"),
        ("localhost:9", "127.0.0.1:9"),
        ("0.0.0.0:9", "127.0.0.1:9"),
        ("[::]:9", "[::1]:9"),
        ("[::1]:9", "[0::1]:9"),
    ],
)
def test_two_listeners_on_one_address_are_refused(data: str, grpc: str, files: dict[str, str]) -> None:
    assert told(listen__data=data, listen__grpc=grpc, **files) == [
        "--listen-grpc: listen.data and listen.grpc are both on port 9; give each listener a port of its own"
    ]
    (line,) = told(listen__data="127.0.0.1:8782")
    assert line.startswith("--listen-data: listen.data and listen.grpc")


def test_one_port_of_different_addresses_is_fine() -> None:
    assert load(listen__data="127.0.0.1:9", listen__control="127.0.0.2:9", listen__grpc="[::1]:9")


def test_no_token_is_asked_for_on_loopback_only_and_not_without_a_warning(files: dict[str, str]) -> None:
    settings = load(auth__grpc="none")
    assert settings.auth.grpc == "none"
    (warning,) = settings.warnings
    assert warning.startswith("--grpc-auth: auth.grpc is none: everybody on this machine may read and change")
    (line,) = told(auth__grpc="none", listen__grpc="0.0.0.0:1", **files)
    assert line.startswith("--grpc-auth: auth.grpc is none while listen.grpc 0.0.0.0:1 can be reached")
    assert load(auth__grpc="none", listen__data="0.0.0.0:1", **files).warnings


# The files of TLS


def test_tls_takes_certificate_key_and_authority(files: dict[str, str], tmp_path: Path) -> None:
    settings = load(**files, tls__client_ca=f"{tmp_path}/ca.pem")
    assert settings.tls == Tls(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("given", "missing"),
    [("tls__cert", "tls.key"), ("tls__key", "tls.cert"), ("tls__client_ca", "tls.cert and tls.key")],
)
def test_half_of_tls_is_refused(given: str, missing: str, files: dict[str, str]) -> None:
    (line,) = told(**{given: "/some/file"})
    assert line.endswith(f"{given.replace('__', '.')} is given without {missing}; add {missing}")


@pytest.mark.parametrize("key", ["tls__cert", "tls__key", "tls__client_ca"])
def test_a_file_of_tls_that_is_missing_is_named(key: str, files: dict[str, str], tmp_path: Path) -> None:
    named = key.replace("__", ".")
    (line,) = told(**{**files, key: f"{tmp_path}/none"})
    assert line.endswith(f": {named} {tmp_path}/none: no such file; check the path")


def test_what_is_no_certificate_key_or_authority_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("rubbish")
    for key, reason in (
        ("tls__cert", "holds no certificate"),
        ("tls__key", "holds no private key"),
        ("tls__client_ca", "holds no certificate"),
    ):
        (line,) = told(**{**files, key: str(rubbish)})
        assert key.replace("__", ".") in line
        assert reason in line


def test_a_key_of_another_certificate_is_refused(files: dict[str, str], authority: trustme.CA, tmp_path: Path) -> None:
    authority.issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "other.pem")
    (tmp_path / "other.pem").chmod(0o600)
    (line,) = told(**{**files, "tls__key": f"{tmp_path}/other.pem"})
    assert (
        line == f"--tls-key: tls.key {tmp_path}/other.pem does not belong to the certificate; name the key of tls.cert"
    )


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(files: dict[str, str], tmp_path: Path) -> None:
    key = load_pem_private_key((tmp_path / "key.pem").read_bytes(), None)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "key.pem").write_bytes(sealed)
    (line,) = told(**files)
    assert "has a passphrase" in line


@pytest.mark.parametrize(("mode", "count"), [(0o600, 0), (0o640, 0), (0o604, 1), (0o644, 1)])
def test_a_key_that_every_user_may_read_is_worth_a_warning(mode: int, count: int, files: dict[str, str]) -> None:
    os.chmod(files["tls__key"], mode)
    warnings = load(**files).warnings
    assert len(warnings) == count
    assert all(each.startswith("--tls-key: every user of this machine can read tls.key") for each in warnings)
