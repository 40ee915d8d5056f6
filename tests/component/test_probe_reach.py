"""Verification reaches what a route may reach, over verified TLS, and lets go of it whatever happens."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from pointsman.gateway.probe import ProbeLimits, Prober
from tests.support.canary import KEY, Finder
from tests.support.descriptors import open_sockets
from tests.support.name_server import in_own_network
from tests.support.probed_upstream import answer, probed_upstream
from tests.support.probing import refused, resolved, run, verified

OK = answer(200, b"{}")


def test_a_port_where_nobody_listens_is_a_connectivity_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    text = run(refused(resolved(f"http://127.0.0.1:{port}/v1")))
    assert f"cannot be reached (cannot connect to 127.0.0.1:{port}: Connection refused); check the base URL" in text


def test_a_name_that_does_not_resolve_is_a_connectivity_failure() -> None:
    assert "(cannot resolve no-such-host.invalid:" in run(refused(resolved("http://no-such-host.invalid/v1")))


@pytest.mark.guarantee("G7")
def test_a_name_that_means_a_metadata_address_is_not_dialled() -> None:
    result = in_own_network("probe", [])
    assert "cannot be reached (metadata.example has no address that may be dialled)" in result["text"]
    assert result["asked"] == ["metadata.example"]
    assert not result["dialled"]


# TLS


def server_context(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The authority, as the only one in the system's store."""
    path = tmp_path / "bundle.pem"
    authority.cert_pem.write_to_path(path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))


@pytest.mark.usefixtures("trusted")
def test_an_upstream_that_the_system_trusts_is_verified(authority: trustme.CA) -> None:
    async def main() -> None:
        async with probed_upstream(answer(404), OK, context=server_context(authority, "localhost")) as upstream:
            (reached,) = await verified(resolved(upstream.url))
            assert reached.url == upstream.url + "/chat/completions"
            assert upstream.requests[0].value(b"host") == upstream.url[8:-3].encode()

    run(main())


@pytest.mark.guarantee("U4")
def test_an_unknown_authority_is_a_connectivity_failure_and_gets_no_request(authority: trustme.CA) -> None:
    check_untrusted(server_context(authority, "localhost"))


@pytest.mark.guarantee("U4")
@pytest.mark.usefixtures("trusted")
def test_a_certificate_of_another_name_is_a_connectivity_failure_and_gets_no_request(authority: trustme.CA) -> None:
    check_untrusted(server_context(authority, "example.com"))


def check_untrusted(context: ssl.SSLContext) -> None:
    async def main() -> None:
        async with probed_upstream(OK, context=context) as upstream:
            text = (await refused(resolved(upstream.url))).lower().replace("_", " ")
            assert not upstream.requests
        assert "cannot be reached (localhost:" in text
        assert "certificate verify failed" in text

    run(main())


def test_tls_where_none_is_spoken_is_a_connectivity_failure() -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(400))
        writer.close()
        await writer.wait_closed()

    async def main() -> str:
        server = await asyncio.start_server(complain, "127.0.0.1", 0)
        async with server:
            return await refused(resolved(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))

    assert "TLS handshake failed" in run(main())


# Letting go


def test_a_caller_who_goes_away_ends_it_before_anything_else_happens() -> None:
    async def main() -> None:
        async with probed_upstream(None) as upstream, asyncio.TaskGroup() as group:
            verifying = group.create_task(Prober().verify(resolved(upstream.url), "prod"))
            await upstream.asked.wait()
            verifying.cancel()
            await upstream.all_left()
            assert verifying.cancelled()

    run(main())


def test_a_caller_who_goes_away_during_the_handshake_or_the_body_ends_it() -> None:
    async def main() -> None:
        head = b"HTTP/1.1 400 No\r\nContent-Length: 9\r\n\r\n"
        async with probed_upstream(iter([head, None]), None) as upstream:
            for scheme in ("http", "https"):
                url = upstream.url.replace("http", scheme)
                connections = upstream.connections
                async with asyncio.TaskGroup() as group:
                    verifying = group.create_task(Prober().verify(resolved(url), "prod"))
                    async with asyncio.timeout(10):
                        while upstream.connections == connections or (scheme == "http" and not upstream.sent):
                            await asyncio.sleep(0.01)
                    verifying.cancel()
                await upstream.all_left()
                assert verifying.cancelled()

    run(main())


def test_a_refusal_that_does_not_end_is_let_go_of_before_the_next_probe_waits() -> None:
    endless = iter([b"HTTP/1.1 400 No\r\nContent-Length: 9\r\n\r\n", None])

    async def main() -> None:
        limits = ProbeLimits(body_seconds=0.05)
        async with probed_upstream(endless, None) as upstream, asyncio.TaskGroup() as group:
            verifying = group.create_task(Prober(limits).verify(resolved(upstream.url), "prod"))
            async with asyncio.timeout(10):
                while (upstream.connections, upstream.open) != (2, 1):
                    await asyncio.sleep(0.005)
            verifying.cancel()

    run(main())


def test_many_verifications_at_once_keep_apart() -> None:
    async def one(status: int) -> Any:
        async with probed_upstream(answer(status)) as upstream:
            if status == 200:
                return await verified(resolved(upstream.url))
            return await refused(resolved(upstream.url))

    async def main() -> None:
        statuses = [200, 401, 429, 500] * 10
        results = await asyncio.gather(*map(one, statuses))
        for status, result in zip(statuses, results, strict=True):
            assert (f"HTTP {status}" in result) == (status != 200)

    run(main())


def test_no_socket_is_left_behind() -> None:
    async def main() -> None:
        before = open_sockets()
        for given in (OK, answer(401), answer(500), b"rubbish\r\n"):
            async with probed_upstream(given) as upstream:
                if given is OK:
                    await verified(resolved(upstream.url))
                else:
                    await refused(resolved(upstream.url))
        async with asyncio.timeout(5):
            while open_sockets() != before:
                await asyncio.sleep(0.005)

    run(main())


@pytest.mark.guarantee("U5")
def test_proxies_and_credentials_of_the_environment_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password something\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    async def main() -> None:
        async with probed_upstream() as elsewhere, probed_upstream(OK) as upstream:
            for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, elsewhere.url)
            assert await verified(resolved(upstream.url))
            assert not elsewhere.connections
        assert upstream.requests[0].value(b"authorization") == b"Bearer " + KEY.encode()

    run(main())


@pytest.mark.guarantee("G7")
def test_no_failure_shows_the_key() -> None:
    finder = Finder({"key": KEY})
    echo = KEY.encode()
    answers = [
        answer(401, echo),
        answer(500, b'{"error":{"code":"%b","type":"%b"}}' % (echo.lower(), echo[:9].lower())),
        answer(302, fields=b"Location: https://%b.example.com/%b?%b\r\n" % (echo, echo, echo)),
        b"HTTP/1.1 200 %b\x00\r\n\r\n" % echo,
        b"%b\r\n\r\n" % echo,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %b\r\n\r\n" % echo,
        b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % echo,
    ]

    async def main() -> None:
        for given in answers:
            async with probed_upstream(given) as upstream:
                text = await refused(resolved(upstream.url))
            assert not finder.find(text.encode())

    run(main())
