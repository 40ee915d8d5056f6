"""A gateway beyond loopback: its certificate is verified, ours is shown, and no proxy variable diverts the line."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
import trustme

from pointsman.core.gateway_address import read_gateway_address
from pointsman.rpc.channel import LARGEST_PEM_FILE, ChannelFileError, open_channel
from tests.support.follower import Follower
from tests.support.processes import following_process
from tests.support.scripted_gateway import ScriptedGateway, resolved

MOCK = resolved("mock://canned")
LOADED = ["routes_loaded", "inference_enabled"]
UNREACHABLE = ["fetch_failed gateway_unreachable"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return str(tmp_path / "ca.pem")


def credentials(
    authority: trustme.CA, name: str = "localhost", *, mutual: bool = False, until: datetime | None = None
) -> grpc.ServerCredentials:
    leaf = authority.issue_cert(name, not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=until)
    chain = b"".join(each.bytes() for each in leaf.cert_chain_pems)
    root = authority.cert_pem.bytes() if mutual else None
    return grpc.ssl_server_credentials([(leaf.private_key_pem.bytes(), chain)], root, require_client_auth=mutual)


def test_a_gateway_is_verified_against_the_given_authority(authority: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    files = {"ca_file": ca_file}
    with (
        ScriptedGateway(MOCK, credentials=credentials(authority)) as gateway,
        Follower(gateway, tmp_path, files=files) as follower,
    ):
        follower.poll()
        assert follower.events() == LOADED


def test_a_gateway_of_another_authority_or_name_gets_no_token(
    authority: trustme.CA, ca_file: str, tmp_path: Path
) -> None:
    for server, files, told in (
        (credentials(trustme.CA()), {"ca_file": ca_file}, "is not trusted; give its authority's by --gateway-ca"),
        (credentials(authority), {}, "is not trusted"),  # the public authorities know nothing of it
        (credentials(authority, "gateway.example"), {"ca_file": ca_file}, "is for another name; name the host"),
    ):
        with (
            ScriptedGateway(MOCK, credentials=server) as gateway,
            Follower(gateway, tmp_path, files=files) as follower,
        ):
            follower.poll()
            assert follower.events() == UNREACHABLE
            assert f"{gateway.url}: its certificate {told}" in follower.door.log.getvalue()
            assert gateway.fetches == 0


def test_why_no_connection_comes_about_is_told_in_words(authority: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    expired = credentials(authority, until=datetime(2021, 1, 1, tzinfo=UTC))
    for server, file, cause in (
        (expired, ca_file, "its certificate has expired; renew it"),
        (credentials(authority), str(tmp_path / "junk.pem"), "the files of --gateway-ca"),
        (credentials(trustme.CA()), ca_file, "its certificate is not trusted; give its authority's by --gateway-ca"),
    ):
        with (
            ScriptedGateway(MOCK, credentials=server) as gateway,
            Follower(gateway, tmp_path, files={"ca_file": file}) as follower,
        ):
            follower.poll()
            assert f'detail="{gateway.url}: {cause}' in follower.door.logged()


def test_a_gateway_that_wants_a_certificate_gets_ours(authority: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    ours = authority.issue_cert("sandbox.example")
    ours.private_key_and_cert_chain_pem.write_to_path(tmp_path / "ours.pem")
    both = {"certificate_file": str(tmp_path / "ours.pem"), "key_file": str(tmp_path / "ours.pem")}
    for files, expected in (({"ca_file": ca_file, **both}, LOADED), ({"ca_file": ca_file}, UNREACHABLE)):
        with (
            ScriptedGateway(MOCK, credentials=credentials(authority, mutual=True)) as gateway,
            Follower(gateway, tmp_path, files=files) as follower,
        ):
            follower.poll()
            assert follower.events() == expected


def test_an_authority_that_is_exchanged_on_disk_is_taken_at_the_next_poll(
    authority: trustme.CA, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    with (
        ScriptedGateway(MOCK, credentials=credentials(authority)) as gateway,
        Follower(gateway, tmp_path, files={"ca_file": str(path)}) as follower,
    ):
        follower.poll()
        authority.cert_pem.write_to_path(path)
        follower.poll()
        assert follower.events() == [*UNREACHABLE, "fetch_recovered", *LOADED]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _no_certificates(path: Path) -> None:
    path.write_bytes(b"\0" * 3 * 1024 * 1024)


@pytest.mark.parametrize("exchange", [_pipe, _directory, _no_certificates])
def test_an_authority_that_becomes_something_else_is_told_and_the_routes_stay(
    authority: trustme.CA, ca_file: str, tmp_path: Path, exchange: Callable[[Path], None]
) -> None:
    path = Path(ca_file)
    with (
        ScriptedGateway(MOCK, credentials=credentials(authority)) as gateway,
        Follower(gateway, tmp_path, files={"ca_file": ca_file}) as follower,
    ):
        follower.poll()
        gateway.stop()
        follower.poll()  # drops the connection
        path.unlink()
        exchange(path)
        gateway.start()
        follower.poll()
        assert follower.ask().status == 200
        assert follower.events() == [*LOADED, *UNREACHABLE, "fetch_failed certificate_unreadable"]
        assert f"--gateway-ca {path}: " in follower.door.log.getvalue()
        path.rmdir() if path.is_dir() else path.unlink()
        authority.cert_pem.write_to_path(path)
        follower.poll()
        assert follower.events()[-1] == "fetch_recovered"


@pytest.mark.parametrize("size", [LARGEST_PEM_FILE, LARGEST_PEM_FILE + 1])
def test_a_file_of_certificates_may_have_the_limit(authority: trustme.CA, tmp_path: Path, size: int) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.cert_pem.bytes().ljust(size, b"\n"))
    gateway = read_gateway_address("https://127.0.0.1:1", ca_file=str(path))
    if size == LARGEST_PEM_FILE:
        open_channel(gateway).close()
    else:
        with pytest.raises(ChannelFileError, match=f"has over {LARGEST_PEM_FILE} bytes"):
            open_channel(gateway)


class Lurker:
    """Listens where proxy variables lead, and counts who comes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.visitors = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._listener.accept()[0].close()
                self.visitors += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()


@pytest.fixture
def lurker() -> Iterator[Lurker]:
    lurker = Lurker()
    yield lurker
    lurker.close()


@pytest.mark.parametrize("tls", [False, True])
def test_proxy_variables_do_not_divert_the_line_to_the_gateway(
    authority: trustme.CA, ca_file: str, tmp_path: Path, lurker: Lurker, tls: bool
) -> None:
    names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    environ = {**os.environ, **dict.fromkeys(names, lurker.url), "no_proxy": "", "NO_PROXY": ""}
    server = credentials(authority) if tls else None
    with ScriptedGateway(MOCK, credentials=server) as gateway:
        options = ["--gateway-ca", ca_file] if tls else []
        with following_process(gateway.url, gateway.token, tmp_path, *options, environ=environ) as proxy:
            assert gateway.fetches >= 1
            assert any(" routes_loaded source=gateway " in line for line in proxy.lines)
    assert lurker.visitors == 0
