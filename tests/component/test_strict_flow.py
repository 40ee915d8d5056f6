"""Bodies on their way: any cutting, any pause, any client, and what each costs."""

import asyncio
import itertools
import json
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import RouterError, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.proxy.relay import Relay
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.exchange import Exchange, Patience
from pointsman.testing import FakeClock
from tests.support.door import Door, candidate
from tests.support.processes import proxy_process
from tests.support.raw_client import Answer, RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer, begin


class Line:
    """The connection of an exchange, which only notes what became of it."""

    def __init__(self) -> None:
        self.kept: bool | None = None

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def release(self, *, reusable: bool) -> None:
        self.kept = reusable


class Client:
    """What a relay writes."""

    def __init__(self) -> None:
        self.keep_alive = True
        self.written = b""
        self.was_cut = False

    def write(self, data: bytes) -> None:
        self.written += data

    def cut(self, *, visibly: bool) -> None:
        self.was_cut = True


def relayed(pieces: list[bytes], *, clean: bool, limits: Limits = DEFAULT_LIMITS) -> tuple[object, ...]:
    """What a client gets of a response that comes in these pieces and ends: head, body, end, and the line's fate."""

    async def main() -> tuple[object, ...]:
        loop = asyncio.get_running_loop()
        sweep = Sweep(loop, 1.0, loop.time)
        line, client = Line(), Client()
        exchange = Exchange(line, limits, sweep, Patience(1.0), reused=False)
        rest = iter(pieces)
        try:
            for piece in rest:
                exchange.receive(piece)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0):
                        await exchange.opened()
                        break
            else:
                exchange.lost(clean=clean)
                await exchange.opened()
        except RouterError as error:
            sweep.close()
            return type(error), line.kept
        relay = Relay(client, exchange.head, b"", minor=1, protocol="openai_chat_completions", limits=limits)
        task = loop.create_task(exchange.relay(relay))
        await asyncio.sleep(0)
        for piece in rest:
            if line.kept is None:
                exchange.receive(piece)
        if line.kept is None:
            exchange.lost(clean=clean)
        if reason := await task:
            relay.truncate(reason)
        exchange.close()
        sweep.close()
        return (*decoded(client.written), client.was_cut, line.kept)

    return asyncio.run(main())


def decoded(data: bytes) -> tuple[bytes, bytes, bool]:
    """Head, body and whether it ended, of a chunked response."""
    head, _, rest = data.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        if not length:
            assert rest == b"\r\n"
            return head, body, True
        body, rest = body + rest[:length], rest[length + 2 :]
    return head, body, False


EVENTS = 'data: {"a":"é漢🚃"}\r\n\r\n: ping\n\nevent: x\rdata: 2\r\rdata: [DONE]\n\n'.encode()
EVENT_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-A: \xe9\r\n"
AS_CHUNKS = b"7;x=y\r\n%b\r\n%x\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % (EVENTS[:7], len(EVENTS) - 7, EVENTS[7:])
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
RESPONSES = {
    "events by length": EVENT_HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(EVENTS), EVENTS),
    "events in chunks": HINT + EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + AS_CHUNKS,
    "events to the end": EVENT_HEAD + b"\r\n" + EVENTS,
    "json by length": JSON_HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(EVENTS), EVENTS),
    "json in chunks": JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + AS_CHUNKS,
    "json to the end": JSON_HEAD + b"\r\n" + EVENTS,
    "cut events": EVENT_HEAD + b"Content-Length: 999\r\n\r\n" + EVENTS + b"data: half",
    "cut json": JSON_HEAD + b"Content-Length: 999\r\n\r\n" + EVENTS,
    "a broken chunk": EVENT_HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\nzz\r\n",
    "a bad head": b"HTTP/1.1 200 OK\r\nX-A: 1\n\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.mark.guarantee("R4")
@pytest.mark.parametrize("form", RESPONSES)
@given(cuts=st.lists(st.integers(1, 400), max_size=12))
def test_any_cutting_of_the_upstreams_bytes_gives_the_client_the_same(form: str, cuts: list[int]) -> None:
    data = RESPONSES[form]
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    whole = relayed([data], clean=True)
    assert relayed(pieces, clean=True) == whole
    if "cut" not in form and "broken" not in form and "bad" not in form and form != "no content":
        assert whole[1:4] == (EVENTS, True, False)


@pytest.mark.guarantee("R4")
@pytest.mark.parametrize("form", RESPONSES)
def test_a_response_that_comes_byte_by_byte_gives_the_client_the_same(form: str) -> None:
    data = RESPONSES[form]
    assert relayed([bytes([byte]) for byte in data], clean=True) == relayed([data], clean=True)


@pytest.mark.guarantee("R6")
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("head", [EVENT_HEAD, JSON_HEAD])
@pytest.mark.parametrize("piece", [1, 30, 1000])
def test_a_body_may_have_the_limit_and_not_a_byte_more(extra: int, head: bytes, piece: int) -> None:
    body = b"data: " + b"x" * 92 + b"\n\n" + b"\n" * extra
    data = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    limits = replace(DEFAULT_LIMITS, response_body_bytes=100)
    _, got, ended, was_cut, kept = relayed(pieces, clean=True, limits=limits)
    assert isinstance(got, bytes)
    assert got[:100] == body[:100]
    assert kept is not bool(extra)
    if head is EVENT_HEAD:
        assert (b"exceeded maximum streaming body size" in got) is bool(extra)
        assert (ended, was_cut) == (True, False)
    else:
        assert (len(got), ended, was_cut) == (100, not extra, bool(extra))


async def idle(seconds: float, *, sink: bool) -> tuple[str, float]:
    """An exchange whose upstream pauses for so long, on a clock of our own: what it is told, and when at the latest."""
    clock = FakeClock()
    sweep = Sweep(asyncio.get_running_loop(), 1.0, clock)
    line = Line()
    exchange = Exchange(line, DEFAULT_LIMITS, sweep, Patience(120.0), reused=False)
    client = Client()
    if sink:
        exchange.receive(EVENT_HEAD + b"\r\ndata: 1\n\n")
        relay = Relay(client, exchange.head, b"", minor=1, protocol="", limits=DEFAULT_LIMITS)
        task = asyncio.get_running_loop().create_task(exchange.relay(relay))
        await asyncio.sleep(0)
    clock.advance(seconds)
    exchange.sweep(clock())
    told = ""
    if sink:
        exchange.lost(clean=True) if line.kept is None else None
        told = await task
    elif line.kept is not None:
        with pytest.raises(UpstreamUnavailable) as raised:
            await exchange.opened()
        told = raised.value.detail
    exchange.close()
    sweep.close()
    return told, clock()


@pytest.mark.guarantee("R5")
@pytest.mark.parametrize(
    ("seconds", "told"),
    [(119.0, ""), (119.999, ""), (120.0, "chunk idle timeout exceeded"), (121.0, "chunk idle timeout exceeded")],
)
def test_a_stream_may_pause_for_119_seconds_and_not_for_121(seconds: float, told: str) -> None:
    assert asyncio.run(idle(seconds, sink=True))[0] == told


@pytest.mark.guarantee("U7")
@pytest.mark.parametrize(("seconds", "told"), [(119.999, ""), (120.0, "no response head in time")])
def test_a_head_is_waited_for_119_seconds_and_not_for_120(seconds: float, told: str) -> None:
    assert asyncio.run(idle(seconds, sink=False))[0] == told


@pytest.mark.guarantee("R5", "R8")
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/messages"])
def test_a_real_pause_ends_in_the_exact_text(quick_door: Door, upstream: Upstream, path: bytes) -> None:
    with quick_door.plain() as client:
        peer = begin(client, upstream, path)
        peer.start_events()
        peer.chunk(b"data: 1\n\ndata: ha")
        started = time.monotonic()
        answer = client.answer()
        assert time.monotonic() - started > 0.2
    first, _, last = answer.body.partition(b"\n\n")
    assert first == b"data: 1"
    content = json.loads(last.removeprefix(b"event: error\n").removeprefix(b"data: "))
    assert content["error"]["message"] == "response truncated: chunk idle timeout exceeded"
    assert content["error"]["type"] == "proxy_stream_error"
    assert answer.complete
    assert peer.wait_closed()


CUTS: dict[str, Callable[[UpstreamPeer], None]] = {"fin": UpstreamPeer.close, "rst": UpstreamPeer.reset}


def truncated(door: Door, upstream: Upstream, sent: bytes, cut: str) -> Answer:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        client.read_until(b"\r\n\r\n")
        if sent:
            peer.chunk(sent)
        CUTS[cut](peer)
        client.buffer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + client.buffer
        return client.answer()


@pytest.mark.guarantee("R7", "R8")
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    "half",
    [b"", b"d", b"data: {\"choices\":[{\"finish_reason\":\"sto", b"data: [DONE]", b"data: [DONE]\n",
     b"event: error\r\ndata: {}\r\n", b"data: \xe6\xbc"],
)  # fmt: skip
def test_a_truncated_stream_has_no_end_that_was_not_sent(door: Door, upstream: Upstream, cut: str, half: bytes) -> None:
    whole = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    answer = truncated(door, upstream, whole + half, cut)
    events = answer.body.split(b"\n\n")
    # After a reset the kernel may have thrown away what we had not read yet.
    assert events[:-2] in ([whole[:-2]], [] if cut == "rst" else [whole[:-2]])
    assert json.loads(events[-2].removeprefix(b"data: "))["error"]["type"] == "proxy_stream_error"
    assert events[-1] == b""
    assert b"[DONE]" not in answer.body
    assert b"stop" not in answer.body
    assert b"127.0.0.1" not in answer.body


def leave(client: RawClient, how: str) -> None:
    if how == "goodbye":  # of TLS: nothing more will be sent
        with suppress(ssl.SSLError, TimeoutError):
            client.sock.settimeout(0.01)
            assert isinstance(client.sock, ssl.SSLSocket)
            client.sock.unwrap()
    else:
        {"fin": client.close, "half": client.half_close, "rst": client.reset}[how]()


@pytest.mark.guarantee("R11", "U6")
@pytest.mark.parametrize("how", ["fin", "half", "rst", "goodbye"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("first_byte", [True, False])
def test_a_client_that_leaves_takes_its_upstream_with_it_within_a_second(
    door: Door, upstream: Upstream, how: str, stream: bool, first_byte: bool
) -> None:
    client = door.tunnel()
    peer = begin(client, upstream)
    if first_byte and stream:
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
    elif first_byte:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
        client.read_until(b"{")
    leave(client, how)
    assert peer.wait_closed(1.0)
    client.close()


@pytest.mark.guarantee("R11")
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_while_its_upstream_is_dialled_stops_the_dialling(how: str) -> None:
    # A full backlog makes the kernel drop the SYN. What was given up never turns up when there is room again.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        with Door(candidate(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")) as door:
            client = door.tunnel()
            client.send(post())
            deadline = time.monotonic() + 5
            while syn_sent(listener.getsockname()[1]) <= len(fillers) - 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            before = syn_sent(listener.getsockname()[1])
            leave(client, how)
            deadline = time.monotonic() + 1
            while syn_sent(listener.getsockname()[1]) >= before and time.monotonic() < deadline:
                time.sleep(0.01)
            assert syn_sent(listener.getsockname()[1]) == before - 1
            assert "infer_cancelled" in door.logged()
        for filler in fillers:
            filler.close()


def syn_sent(port: int) -> int:
    """Connections to a local port that wait for an answer to their SYN."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


def resident_kib(pid: int) -> int:
    # Counted page by page; the kernel's running totals in statm may be off by megabytes.
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.guarantee("R10")
@pytest.mark.parametrize("content", [b"text/event-stream", b"application/json"])
def test_a_client_that_never_reads_stops_its_upstream_and_costs_no_memory(tmp_path: Path, content: bytes) -> None:
    with Upstream() as upstream:
        routes = (
            f"routes:\n  - {{route: inference.local, endpoint: '{upstream.url}', model: m, "
            "protocols: [openai_chat_completions], api_key: none}\n"
        )
        with proxy_process(routes, tmp_path) as proxy:

            def ask() -> RawClient:
                client = RawClient(socket.create_connection(("127.0.0.1", proxy.port), 10))
                client.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n")
                client.read_until(b"\r\n\r\n")
                context = ssl.create_default_context(cafile=str(proxy.ca_directory / "pointsman-ca.pem"))
                client.start_tls(context, "inference.local")
                client.send(post())
                return client

            with ask() as warm:  # what the first request makes is not what this test is about
                peer = upstream.accept()
                peer.request()
                peer.respond(b"x" * 4_000_000)
                assert len(warm.answer().body) == 4_000_000
            before = resident_kib(proxy.process.pid)
            with ask():
                peer.request()
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: 200000000\r\n\r\n" % content)
                sent = push(peer, b"data: " + b"x" * 60_000 + b"\n\n", 200_000_000)
                grown = resident_kib(proxy.process.pid) - before
    assert sent < 31_000_000  # it was stopped by the client, before the limit of a body could strike
    assert grown < 4 * 1024


def push(peer: UpstreamPeer, piece: bytes, most: int) -> int:
    """Send until nothing has been taken for half a second; how much went."""
    peer.sock.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        while sent < most:
            sent += peer.sock.send(piece)
    return sent
