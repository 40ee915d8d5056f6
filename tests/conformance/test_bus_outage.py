"""What becomes of the bus while its NATS server is killed, stopped or started again, or is not what it must be."""

import asyncio
import contextlib
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from pointsman.bus.interface import BusUnavailable, NoReply
from pointsman.bus.nats import NatsBus, open_nats_bus
from pointsman.core.broker import parse_broker
from pointsman.core.secret import Secret
from tests.support.nats_server import NatsServer, nats_server

SUBJECT = "pointsman.test"
LONG = 30.0


@contextlib.asynccontextmanager
async def opened(server: NatsServer, said: list[str]) -> AsyncIterator[tuple[NatsBus, list[bytes]]]:
    """A bus that serves its own subject, and what was asked of it. `hold` is never answered."""
    seen: list[bytes] = []

    async def handle(payload: bytes) -> bytes:
        seen.append(payload)
        if payload == b"hold":
            await asyncio.Event().wait()
        return payload

    bus = await open_nats_bus(Secret(server.url), said.append)
    try:
        await bus.serve(SUBJECT, handle)
        yield bus, seen
    finally:
        await bus.close()


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask again and again."""
    async with asyncio.timeout(LONG):
        while not await holds():
            await asyncio.sleep(0.02)
    assert what


async def answers(bus: NatsBus) -> bool:
    with contextlib.suppress(BusUnavailable, NoReply):
        return await bus.request(SUBJECT, b"again", 1) == b"again"
    return False


async def is_gone(bus: NatsBus) -> bool:
    try:
        await bus.publish(SUBJECT, b"probe")
    except BusUnavailable:
        return True
    return False


async def test_a_killed_server_ends_waiting_at_once_and_nothing_is_replayed_when_it_is_back(tmp_path: Path) -> None:
    said: list[str] = []
    with nats_server(tmp_path) as server:
        async with opened(server, said) as (bus, seen):
            asked = asyncio.ensure_future(bus.request(SUBJECT, b"hold", LONG))
            await until(lambda: _true(seen == [b"hold"]), "the request arrived")
            began = time.monotonic()
            server.kill()
            with pytest.raises(BusUnavailable):
                await asked
            for number in range(20):
                with pytest.raises(BusUnavailable):
                    await bus.request(SUBJECT, b"lost %d" % number, LONG)
                with pytest.raises(BusUnavailable):
                    await bus.publish(SUBJECT, b"lost %d" % number)
            assert time.monotonic() - began < LONG / 3
            with pytest.raises(BusUnavailable):
                await bus.serve("pointsman.other", _mute)
            server.start()
            await until(lambda: answers(bus), "it is connected again")
            assert not [each for each in seen if each.startswith(b"lost")]
            assert seen.count(b"hold") == 1
    assert any("was lost" in line for line in said)
    assert any("connected again" in line for line in said)


async def test_what_was_sent_to_a_server_that_is_stopped_fails_in_time_and_is_never_sent_again(tmp_path: Path) -> None:
    said: list[str] = []
    with nats_server(tmp_path) as server:
        async with opened(server, said) as (bus, seen):
            server.send(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises((NoReply, BusUnavailable)):
                await bus.request(SUBJECT, b"stuck", 0.2)
            assert time.monotonic() - began < LONG / 3
            # 4 MiB do not fit into what the system takes over for a stopped server: the rest stays with us.
            filling = [asyncio.ensure_future(bus.request(SUBJECT, bytes(4 << 20), LONG)) for _ in range(8)]
            ends = await asyncio.gather(*filling, return_exceptions=True)
            assert {type(each) for each in ends} == {BusUnavailable}
            await until(lambda: is_gone(bus), "it was given up")
            server.kill()
            server.start()
            await until(lambda: answers(bus), "it is connected again")
            assert set(seen) == {b"again"}


async def test_a_server_that_carries_too_little_is_refused_with_the_setting_that_it_lacks(tmp_path: Path) -> None:
    for too_little in ("1MB", str((4 << 20) - 1)):
        with (
            nats_server(tmp_path, too_little) as server,
            pytest.raises(BusUnavailable, match="set max_payload: 4MB in its configuration"),
        ):
            await open_nats_bus(Secret(server.url), print)
    with nats_server(tmp_path, str(4 << 20)) as server:
        await (await open_nats_bus(Secret(server.url), print)).close()


async def test_a_server_that_comes_back_with_less_is_not_used_until_it_carries_enough(tmp_path: Path) -> None:
    said: list[str] = []
    with nats_server(tmp_path) as server:
        async with opened(server, said) as (bus, _):
            server.kill()
            server.configure("1MB")
            server.start()
            await until(lambda: _true(any("max_payload: 4MB" in line for line in said)), "it says so")
            with pytest.raises(BusUnavailable):
                await bus.request(SUBJECT, b"x", LONG)
            server.kill()
            server.configure("4MB")
            server.start()
            await until(lambda: answers(bus), "it is connected again")
    assert len([line for line in said if "max_payload" in line]) == 1


async def test_no_server_is_told_in_time_by_its_address(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with pytest.raises(BusUnavailable, match=f"127.0.0.1:{server.port} takes no connection; does it run"):
        await open_nats_bus(Secret(server.url), print)


@pytest.mark.parametrize("kind", ["user", "token"])
async def test_credentials_let_in_and_appear_in_nothing_that_is_said(tmp_path: Path, kind: str) -> None:
    said: list[str] = []
    more = 'authorization { token: "s3cret-w0rd" }'
    right, wrong = "s3cret-w0rd@", "wr0ng-w0rd@"
    if kind == "user":
        more = 'authorization { user: "u%er", password: "s3cret-w0rd" }'
        right, wrong = "u%25er:s3cret-w0rd@", "u%25er:wr0ng-w0rd@"
    with nats_server(tmp_path, more=more, credentials=right) as server:
        async with opened(server, said) as (bus, _):
            assert await answers(bus)
            server.kill()
            server.start()
            await until(lambda: answers(bus), "let in again")
        with pytest.raises(BusUnavailable, match="does not accept the user and password, or the token") as refused:
            await open_nats_bus(Secret(server.url.replace(right, wrong)), said.append)
    told = "\n".join([*said, str(refused.value), repr(refused.value)])
    assert "w0rd" not in told
    assert "u%" not in told


async def test_tls_is_verified_and_a_server_without_it_gets_no_password(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    more = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.pem" }}'
    with nats_server(tmp_path, more=more) as server:
        url = Secret(f"tls://127.0.0.1:{server.port}")
        bus = await open_nats_bus(url, print, context)
        with pytest.raises(BusUnavailable):
            await open_nats_bus(url, print)
        await bus.close()
    assert await _first_words_to_a_server_without_tls(context) == b""


async def _first_words_to_a_server_without_tls(context: ssl.SSLContext) -> bytes:
    heard: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"X","version":"2.10.0","max_payload":4194304,"auth_required":true}\r\n')
        heard.append(await reader.read())
        writer.close()

    listening = await asyncio.start_server(pretend, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(BusUnavailable, match="offers no TLS"):
            await open_nats_bus(Secret(f"tls://user:s3cret-w0rd@127.0.0.1:{port}"), print, context)
        await until(lambda: _true(bool(heard)), "it heard all")
    return b"".join(heard)


@pytest.mark.parametrize(
    "url",
    ["", "http://h:1", "nats://", "nats://h:99999", "nats://h/path", "nats://h?x=s3cret", "nats://[::1", "h:4222"],
)
def test_what_is_no_url_of_a_server_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="is not") as refused:
        parse_broker(Secret(url))
    assert url in ("", "nats://") or url not in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def _true(value: bool) -> bool:
    return value


async def _mute(payload: bytes) -> bytes:
    return payload
