"""Bodies made to cost: many large ones at once, floods of tiny pieces, JSON bombs, sizes that are only claimed.

Each holds less than the bound that its test gives, the loop stays live, and the next client is served.
"""

import contextlib
import gzip
import threading
from collections.abc import Callable

import pytest

from tests.support.answering_upstream import AnsweringUpstream
from tests.support.raw_client import Answer, RawClient, post
from tests.support.watched import WatchedRouter

pytestmark = pytest.mark.alone

MIB = 1024 * 1024
BODY = 10 * MIB
SOME = 24
"""MiB for anything but bodies: buffers of the kernel's size, TLS, the allocator's own slack."""


def chunked(body: bytes, size: int) -> bytes:
    """The request with its body in chunks of a size."""
    head = post().replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def padded(start: bytes, filler: bytes, end: bytes) -> bytes:
    """10 MiB, or as little less as the filler allows."""
    return start + filler * ((BODY - len(start) - len(end)) // len(filler)) + end


def at_once(count: int, act: Callable[[], Answer]) -> list[int]:
    """The statuses that as many clients got, all at the same time."""
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(act().status)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("form", ["declared", "chunked"])
def test_eight_bodies_of_10_mib_at_once(router: WatchedRouter, answering: AnsweringUpstream, form: str) -> None:
    body = padded(b'{"model":"x","a":[', b"[],", b"[]]}")
    request = post(body) if form == "declared" else chunked(body, 64 * 1024)

    def act() -> Answer:
        with router.tunnel() as client:
            client.send(request)
            return client.answer()

    # A body is there twice while its pieces are joined, and once until the upstream has taken it. Joining and
    # sending happen to one after the other.
    with router.withstanding(mib=8 * 20 + SOME):
        for _ in range(2):
            assert at_once(8, act) == [200] * 8
        assert answering.longest_body >= BODY - 100
    # What they took is given back: up to 73 MiB stayed, as chance had it, before the allocator was told so.
    assert router.report().rss_kib / 1024 < router.level.rss_kib / 1024 + 20


@pytest.mark.parametrize("size", [1, 2])
def test_a_flood_of_tiny_chunks_is_400_at_the_4097th(router: WatchedRouter, size: int) -> None:
    request = chunked(b"x" * (size * 200_000), size)
    with router.withstanding(mib=SOME):
        for _ in range(5):
            with router.plain() as client:
                assert refused(client, request) == 400


def refused(client: RawClient, request: bytes) -> int:
    """The status of an answer that may come before the request has been sent."""
    sender = threading.Thread(target=_send, args=(client, request))
    sender.start()
    status = client.answer().status
    client.sock.shutdown(2)
    sender.join()
    return status


def _send(client: RawClient, request: bytes) -> None:
    with contextlib.suppress(OSError):  # it is closed while we still send
        client.send(request)


def test_a_flood_of_extensions_is_400(router: WatchedRouter) -> None:
    head = chunked(b"", 1)[:-5]
    with router.withstanding(mib=SOME):
        for flood in (b"1;" + b"a" * 10 * MIB, (b"1;a=" + b"b" * 100 + b"\r\nx\r\n") * 100_000):
            with router.plain() as client:
                assert refused(client, head + flood) == 400


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Content-Length: 10485761", 413),
        (b"Content-Length: 9223372036854775807", 413),
        (b"Content-Length: 99999999999999999999", 400),
        (b"Transfer-Encoding: chunked", 413),
    ],
)
def test_a_size_that_is_only_claimed_allocates_nothing(router: WatchedRouter, framing: bytes, status: int) -> None:
    request = post()[:-2].replace(b"Content-Length: 2", framing)
    if b"chunked" in framing:
        request += b"FFFFFFFFFFFFFFFF\r\n"
    with router.withstanding(mib=SOME):
        for _ in range(20):
            with router.plain() as client:
                client.send(request)
                assert client.answer().status == status


def test_a_hundred_claims_of_10_mib_hold_what_came_and_no_more(router: WatchedRouter) -> None:
    head = post()[:-2].replace(b"Content-Length: 2", b"Content-Length: %d" % BODY)
    chunk = chunked(b"x", 1)[:-11] + b"%x\r\n" % BODY
    with router.withstanding(mib=SOME):
        clients = [router.plain() for _ in range(100)]
        for client, request in zip(clients, [head, chunk] * 50, strict=True):
            client.send(request + b"{" * 1000)
        assert router.serve_one() < 5.0
        for client in clients:
            client.close()


BOMBS: dict[str, tuple[Callable[[], bytes], int]] = {
    "brackets": (lambda: b"[" * BODY, 400),
    "nested arrays": (lambda: padded(b'{"a":', b"[", b""), 400),
    "nested objects": (lambda: padded(b'{"a":', b'{"a":', b""), 400),
    "closed nested arrays": (lambda: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "small arrays": (lambda: padded(b'{"a":[', b"[],", b'[]],"model":1}'), 200),
    "top-level keys": (lambda: padded(b"{", b'"a":1,', b'"model":1}'), 400),
    "escapes in a key": (lambda: padded(b'{"', b"\\n", b'":1,"model":2}'), 400),
    "escapes in a value": (lambda: padded(b'{"a":"', b"\\u0061", b'","model":2}'), 200),
    "quotes in the model": (lambda: padded(b'{"model":"', b'\\"', b'"}'), 200),
    "a number": (lambda: padded(b'{"a":', b"9", b',"model":2}'), 200),
    "5,000 digits": (lambda: b'{"a":' + b"9" * 5000 + b',"model":2}', 200),
    "an exponent": (lambda: b'{"a":1e' + b"9" * 5000 + b',"model":2}', 200),
    "spaces first": (lambda: padded(b"", b" ", b'{"model":2}'), 200),
    "spaces only": (lambda: b" " * BODY, 400),
    "one emoji": (lambda: padded('{"b":"😀","a":"'.encode(), b"x", b'","model":2}'), 200),
    "an open string": (lambda: padded(b'{"a":"', b"\\\\", b""), 400),
    "zeros": (lambda: bytes(BODY), 400),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_stalls_nobody(router: WatchedRouter, bomb: str) -> None:
    make, status = BOMBS[bomb]
    body = make()
    # The pieces, the joined body, and once more as text where it is not ASCII: four bytes a character.
    with router.withstanding(mib=20 + 40 * (bomb == "one emoji") + SOME):
        for _ in range(3):
            with router.plain() as client:
                client.send(post(body))
                assert client.answer().status == status


def test_an_encoded_request_is_415_and_never_inflated(router: WatchedRouter) -> None:
    bomb = gzip.compress(bytes(100 * MIB), 1)
    assert len(bomb) < MIB
    with router.withstanding(mib=SOME), router.tunnel() as client:
        client.send(post(bomb, fields=b"Content-Encoding: gzip\r\n"))
        assert client.answer().status == 415
