"""What a client may cost: bodies, memory, and connections that do nothing."""

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.limits import DEFAULT_LIMITS, Limits
from tests.support.door import Door, candidate
from tests.support.processes import ProxyProcess, proxy_process
from tests.support.raw_client import GET_MODELS, RawClient, post
from tests.support.recorder import Recorder, assert_alive, assert_refused

CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: inference.local\r\nTransfer-Encoding: chunked\r\n\r\n"
CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
MIB = 1024 * 1024


def body_of(size: int) -> bytes:
    frame = b'{"model":"real-model","a":""}'
    return frame[:-2] + b"b" * (size - len(frame)) + frame[-2:]


def chunks_of(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;note\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX: 1\r\n\r\n"


@pytest.mark.guarantee("F15")
@pytest.mark.parametrize("excess", [0, 1])
def test_a_body_has_10_mib_behind_its_head_and_without_its_chunk_framing(
    strict_door: Door, recorder: Recorder, excess: int
) -> None:
    body = body_of(10 * MIB + excess)
    head = CHUNKED[:-2] + b"X: " + b"a" * 60_000 + b"\r\n\r\n"  # the head does not count
    if excess:
        seen = len(recorder.requests)
        with strict_door.tunnel() as client:
            client.send(post(body)[: -len(body)])  # not a byte of the body
            assert client.answer().status == 413
            assert client.read_to_end() == b""
        assert_refused(strict_door, recorder, head + b"%x\r\n" % len(body), 413)
        assert_refused(
            strict_door, recorder, CHUNKED + chunks_of(body, 64 * 1024).removesuffix(b"0\r\nX: 1\r\n\r\n"), 413
        )
        assert_alive(strict_door, recorder, seen + 2)
        return
    for data in (post(body, fields=b"X: " + b"a" * 60_000 + b"\r\n"), head + chunks_of(body, 64 * 1024)):
        with strict_door.tunnel() as client:
            client.send(data)
            assert client.answer().status == 200
        assert recorder.requests[-1].body == body
    del recorder.requests[-2:]


@pytest.mark.guarantee("F15")
@pytest.mark.parametrize("excess", [0, 1])
def test_a_body_has_4096_chunks(strict_door: Door, recorder: Recorder, excess: int) -> None:
    body = body_of(4096 + excess)
    data = CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    if excess:
        assert_refused(strict_door, recorder, data)
        return
    with strict_door.tunnel() as client:
        client.send(data)
        assert client.answer().status == 200
    assert recorder.requests[-1].body == body


@pytest.fixture(scope="module")
def proxy(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    routes = (
        f"routes:\n  - name: inference.local\n    endpoint: {recorder.url}\n    model: real-model\n"
        "    provider_type: openai\n    api_key: k\n    protocols: [openai_chat_completions, model_discovery]\n"
    )
    with proxy_process(routes, tmp_path_factory.mktemp("proxy")) as running:
        yield running


def enter(proxy: ProxyProcess) -> RawClient:
    """A client inside a process's tunnel."""
    client = RawClient(socket.create_connection(("127.0.0.1", proxy.port), 20))
    client.send(CONNECT)
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    client.start_tls(proxy.client_context(), "inference.local")
    return client


def memory(proxy: ProxyProcess, name: str) -> int:
    """Bytes of resident memory: VmRSS now, VmHWM at the highest."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    match = re.search(rf"{name}:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


@pytest.mark.guarantee("F15")
def test_four_of_the_largest_bodies_at_once_take_a_bounded_amount_of_memory(
    proxy: ProxyProcess, recorder: Recorder
) -> None:
    body = body_of(10 * MIB)
    before = memory(proxy, "VmRSS")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(enter(proxy)) for _ in range(4)]
        requests = [post(body), CHUNKED + chunks_of(body, 64 * 1024)] * 2
        for client, data in zip(clients, requests, strict=True):
            client.send(data[:-1])  # all four are held before the first is complete
        for client, data in zip(clients, requests, strict=True):
            client.send(data[-1:])
        for client in clients:
            assert client.answer().status == 200
    assert [len(request.body) for request in recorder.requests[-4:]] == [len(body)] * 4
    del recorder.requests[-4:]
    # 4 x 10 MiB, each of them at most twice in memory, and the upstream's socket buffers.
    assert memory(proxy, "VmHWM") - before < 100 * MIB


@pytest.mark.guarantee("F17")
def test_500_connections_that_do_nothing_do_not_keep_the_next_client_waiting(proxy: ProxyProcess) -> None:
    starts = [b"", b"CON", CONNECT[:-2], CONNECT, CONNECT + b"\x16\x03\x01\x02\x00\x01"]
    with contextlib.ExitStack() as stack:
        for number in range(500):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 20))
            idle.sendall(starts[number % len(starts)])
        for _ in range(3):
            with enter(proxy) as client:
                client.send(GET_MODELS[:20])
                client.send(GET_MODELS[20:])
                assert client.answer().status == 200
    assert proxy.process.poll() is None


@pytest.mark.guarantee("F17")
@pytest.mark.parametrize("phase", ["connect", "handshake", "head"])
def test_dripping_bytes_extend_no_deadline(recorder: Recorder, quick_limits: Limits, phase: str) -> None:
    with Door(candidate(recorder.url), limits=quick_limits) as door:
        client = door.tunnel() if phase == "head" else door.connect()
        if phase == "handshake":
            client.send(CONNECT)
            client.read_until(b"\r\n\r\n")
        # A record of 256 bytes that never becomes whole, or a head that never ends.
        drops = b"\x16\x03\x01\x01\x00" if phase == "handshake" else CONNECT[:-2] + b"X: "
        started = time.monotonic()
        client.sock.settimeout(0.02)
        with client, contextlib.suppress(OSError):
            for number in range(200):
                client.send(drops[number : number + 1] or b"a")
                try:
                    if not client.sock.recv(65536):
                        break
                except TimeoutError:
                    continue
        assert 0.2 < time.monotonic() - started < 3.5
        assert_alive(door, recorder, len(recorder.requests))


@pytest.mark.guarantee("F17")
def test_the_next_head_has_its_own_deadline_however_long_the_connection_may_idle(
    recorder: Recorder, quick_limits: Limits
) -> None:
    limits = replace(quick_limits, head_seconds=0.3, keep_alive_seconds=30.0)
    with Door(candidate(recorder.url), limits=limits) as door, door.tunnel() as client:
        client.send(GET_MODELS + GET_MODELS)
        assert client.answer().status == 200
        assert client.answer().status == 200
        client.send(b"G")
        started = time.monotonic()
        assert client.answer().status == 408
        assert 0.2 < time.monotonic() - started < 10


@pytest.mark.guarantee("F17")
def test_a_head_that_begins_late_on_an_idle_connection_has_its_whole_time(
    recorder: Recorder, quick_limits: Limits
) -> None:
    limits = replace(quick_limits, head_seconds=30.0, keep_alive_seconds=0.5)
    with Door(candidate(recorder.url), limits=limits) as door, door.tunnel() as client:
        client.send(GET_MODELS)
        assert client.answer().status == 200
        client.send(GET_MODELS[:20])
        client.sock.settimeout(0.8)  # beyond the idle deadline
        with pytest.raises(TimeoutError):
            client.sock.recv(1)
        client.sock.settimeout(10)
        client.send(GET_MODELS[20:])
        assert client.answer().status == 200


@pytest.mark.guarantee("F17")
@pytest.mark.parametrize("part", [b"G", GET_MODELS[:-1], post(b"{}")[:-1], CHUNKED, CHUNKED + b"2\r\n{"])
def test_a_request_that_stops_anywhere_is_408_and_reaches_no_upstream(
    recorder: Recorder, quick_limits: Limits, part: bytes
) -> None:
    seen = len(recorder.requests)
    with Door(candidate(recorder.url), limits=quick_limits) as door:
        with door.tunnel() as client:
            client.send(part)
            assert client.answer().status == 408
            client.send(GET_MODELS)
            assert client.read_to_end() == b""
        assert_alive(door, recorder, seen)


def test_the_deadlines_and_sizes_of_the_door_are_the_published_ones() -> None:
    limits = DEFAULT_LIMITS
    seconds = (limits.connect_head_seconds, limits.tls_handshake_seconds, limits.head_seconds)
    assert seconds == (10.0, 10.0, 30.0)
    assert (limits.body_progress_seconds, limits.keep_alive_seconds) == (30.0, 75.0)
    assert (limits.request_line_bytes, limits.head_bytes, limits.head_fields) == (8192, 65536, 100)
    assert (limits.chunk_extension_bytes, limits.trailer_fields, limits.trailer_bytes) == (8192, 32, 8192)
