"""A relay whose body goes through a filter."""

from hashlib import sha256

import pytest

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.policy import Blocked
from pointsman.proxy.filtered_relay import BROKEN, FilteredRelay
from pointsman.proxy.stages import BodyFilter
from pointsman.wire.response import ResponseHead


class Client:
    def __init__(self) -> None:
        self.keep_alive = True
        self.got = b""
        self.is_cut = False

    def write(self, data: bytes) -> None:
        self.got += data

    def cut(self, *, visibly: bool) -> None:
        self.is_cut = True

    @property
    def body(self) -> bytes:
        """Without its chunks' framing."""
        rest, body = self.got.partition(b"\r\n\r\n")[2], b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return body


class Shouting:
    """Holds all until a line ends; lines with an X do not pass."""

    def __init__(self, error: Exception | None = None) -> None:
        self.held = b""
        self.error = error or Blocked("no X here")

    def receive(self, data: bytes) -> bytes:
        lines = (self.held + data).split(b"\n\n")
        self.held = lines.pop()
        return self._passed(lines)

    def finish(self, *, is_whole: bool = True) -> bytes:
        return self._passed([self.held]) if is_whole and self.held else b""

    def _passed(self, lines: list[bytes]) -> bytes:
        passed = b""
        for line in lines:
            if b"X" in line:
                if isinstance(self.error, Blocked):
                    self.error.passed = passed
                raise self.error
            passed += line.upper() + b"\n\n"
        return passed


def made(body_filter: BodyFilter) -> tuple[FilteredRelay, Client, list[str]]:
    client, abandoned = Client(), []
    head = ResponseHead(200, b"OK", [(b"content-type", b"text/event-stream")])
    relay = FilteredRelay(client, head, b"", minor=1, protocol="openai_responses", limits=DEFAULT_LIMITS)
    relay.filter(body_filter, lambda: abandoned.append("abandoned"))
    return relay, client, abandoned


def test_the_head_waits_for_what_may_pass() -> None:
    relay, client, _ = made(Shouting())
    relay.start()
    relay.body(b"a", last=False)
    assert (client.got, relay.has_begun) == (b"", False)
    relay.body(b"b\n\nc", last=False)
    assert client.got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert client.got.endswith(b"\r\n\r\n4\r\nAB\n\n\r\n")
    relay.body(b"", last=True)
    assert (client.body, relay.ended, relay.sent) == (b"AB\n\nC\n\n", True, 7)


def test_hashes_are_of_what_came_and_of_what_was_handed_on() -> None:
    relay, client, _ = made(Shouting())
    relay.hashes = hashes = BodyHashes(b"")
    for piece in (b"a", b"b\n", b"\nc\n\nd"):
        relay.body(piece, last=False)
    relay.body(b"", last=True)
    assert hashes.answered == sha256(b"ab\n\nc\n\nd").digest()
    assert hashes.delivered == sha256(client.body).digest() == sha256(b"AB\n\nC\n\nD\n\n").digest()


def test_what_is_blocked_stops_the_upstream_and_nothing_more_passes() -> None:
    relay, client, abandoned = made(Shouting())
    relay.body(b"a\n\nX\n\nb\n\n", last=True)
    relay.body(b"c\n\n", last=True)
    assert (client.body, relay.refused, relay.ended, abandoned) == (b"A\n\n", "no X here", False, ["abandoned"])


@pytest.mark.guarantee("P9")
def test_a_search_that_breaks_lets_nothing_pass() -> None:
    relay, client, abandoned = made(Shouting(ZeroDivisionError()))
    relay.body(b"X\n\n", last=True)
    assert (client.got, relay.refused, abandoned) == (b"", BROKEN, ["abandoned"])


def test_usage_is_read_of_what_came_and_the_end_of_what_was_handed_on() -> None:
    relay, _, _ = made(Shouting())
    relay.body(b'{"usage":{"input_tokens":3,"output_tokens":4}}\n\ndata: [DONE]', last=False)
    usage = relay.meter.usage()
    assert usage is not None
    assert (usage.input_tokens, relay.meter.last_event_passed(), relay.last_event_passed()) == (3, True, False)


def test_a_cut_hands_on_what_may_pass_then_says_so() -> None:
    relay, client, _ = made(Shouting())
    relay.body(b"a\n\nb", last=False)
    relay.truncate("upstream read error")
    assert client.got.count(b"HTTP/1.1 200") == 1
    assert client.body.startswith(b'A\n\ndata: {"error":{"message":"response truncated: upstream read error"')
