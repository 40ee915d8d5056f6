"""A relay whose body goes through a filter."""

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import ParamSpec

import pytest

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.policy import Blocked
from pointsman.proxy.answer_searches import MOST_ON_THE_LOOP, AnswerSearches
from pointsman.proxy.brakes import Brake
from pointsman.proxy.filtered_relay import BROKEN, MOST_WAITING, TOO_MUCH_HELD, FilteredRelay, Surroundings
from pointsman.proxy.held_bodies import HeldBodies
from pointsman.proxy.stages import BodyFilter
from pointsman.wire.response import ResponseHead

_MOST_HELD = 40 * 1024
_P = ParamSpec("_P")


class Client:
    def __init__(self, most_held: int) -> None:
        self.keep_alive = True
        self.got = b""
        self.is_cut = False
        self.bodies = HeldBodies(most_held)

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
    """Holds all until a line ends; lines with an X do not pass. What has a slow word in it takes long."""

    def __init__(self, error: Exception | None = None, *, holds: bool = True) -> None:
        self.holds = holds
        self.threads: list[int] = []
        self.go_on = threading.Event()
        self.kept = b""
        self.error = error or Blocked("no X here")

    @property
    def held(self) -> int:
        return len(self.kept)

    def work(self, data: bytes, *, last: bool) -> int:
        return MOST_ON_THE_LOOP + (b"slow" in data or (last and b"slow" in self.kept))

    def receive(self, data: bytes) -> bytes:
        if b"slow" in data:
            self.threads.append(threading.get_ident())
            self.go_on.wait(10)
        lines = (self.kept + data).split(b"\n\n")
        self.kept = lines.pop()
        return self._passed(lines)

    def finish(self, *, is_whole: bool = True) -> bytes:
        return self._passed([self.kept]) if is_whole and self.kept else b""

    def _passed(self, lines: list[bytes]) -> bytes:
        passed = b""
        for line in lines:
            if b"X" in line:
                if isinstance(self.error, Blocked):
                    self.error.passed = passed
                raise self.error
            passed += line.upper() + b"\n\n"
        return passed


def in_a_loop(test: Callable[_P, Coroutine[None, None, None]]) -> Callable[_P, None]:
    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Upstream:
    """What is slowed down."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def pause(self) -> None:
        self.told.append("paused")

    def resume(self) -> None:
        self.told.append("resumed")


def made(body_filter: BodyFilter, most_held: int = _MOST_HELD) -> tuple[FilteredRelay, Client, list[str]]:
    told: list[str] = []
    client = Client(most_held)
    head = ResponseHead(200, b"OK", [(b"content-type", b"text/event-stream")])
    relay = FilteredRelay(client, head, b"", minor=1, protocol="openai_responses", limits=DEFAULT_LIMITS)
    bodies = client.bodies
    around = Surroundings(
        AnswerSearches(),
        lambda: told.append("abandoned"),
        Brake.two_of(Upstream(told))[0],
        lambda size: bodies.change(bodies.total, size),
        lambda: told.append("begun"),
    )
    relay.filter(body_filter, around)
    return relay, client, told


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


@pytest.mark.guarantee("P8")
def test_the_head_does_not_wait_where_nothing_is_refused() -> None:
    relay, client, _ = made(Shouting(holds=False))
    relay.start()
    assert client.got.startswith(b"HTTP/1.1 200 OK\r\n")


def test_hashes_are_of_what_came_and_of_what_was_handed_on() -> None:
    relay, client, _ = made(Shouting())
    relay.hashes = hashes = BodyHashes(b"")
    for piece in (b"a", b"b\n", b"\nc\n\nd"):
        relay.body(piece, last=False)
    relay.body(b"", last=True)
    assert hashes.answered == sha256(b"ab\n\nc\n\nd").digest()
    assert hashes.delivered == sha256(client.body).digest() == sha256(b"AB\n\nC\n\nD\n\n").digest()


def test_what_is_blocked_stops_the_upstream_and_nothing_more_passes() -> None:
    relay, client, told = made(Shouting())
    relay.body(b"a\n\nX\n\nb\n\n", last=True)
    relay.body(b"c\n\n", last=True)
    assert (client.body, relay.refused, relay.ended, told) == (b"A\n\n", "no X here", False, ["begun", "abandoned"])


@pytest.mark.guarantee("P9")
def test_a_search_that_breaks_lets_nothing_pass() -> None:
    relay, client, told = made(Shouting(ZeroDivisionError()))
    relay.body(b"X\n\n", last=True)
    assert (client.got, relay.refused, told) == (b"", BROKEN, ["abandoned"])


@pytest.mark.guarantee("P8")
def test_a_search_that_breaks_where_nothing_is_refused_changes_nothing() -> None:
    relay, client, _ = made(Shouting(ZeroDivisionError(), holds=False))
    relay.body(b"X\n\n", last=False)
    relay.body(b"X\n\n", last=True)
    assert (client.body, relay.refused, relay.ended) == (b"X\n\nX\n\n", "", True)


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


def test_what_is_held_goes_with_the_answers_end() -> None:
    body_filter = Shouting()
    held = weakref.ref(body_filter)
    relay, client, _ = made(body_filter)
    relay.body(b"a", last=False)
    del body_filter
    assert held() is not None
    relay.let_go()
    assert held() is None
    relay.body(b"b", last=True)
    assert client.got == b""


@in_a_loop
async def test_what_takes_long_is_searched_in_a_thread_and_what_comes_meanwhile_waits_for_it() -> None:
    body_filter = Shouting()
    relay, client, _ = made(body_filter)
    relay.body(b"a\n\nslow", last=False)
    relay.body(b"er\n\nb\n\n", last=False)
    relay.body(b"c", last=True)
    assert (client.got, relay.ended) == (b"", False)
    body_filter.go_on.set()
    await relay.searched(is_cut=False)
    assert (client.body, relay.ended) == (b"A\n\nSLOWER\n\nB\n\nC\n\n", True)
    assert body_filter.threads != [threading.get_ident()]


@pytest.mark.guarantee("P9")
@pytest.mark.parametrize("more", [0, 1])
@in_a_loop
async def test_an_upstream_waits_while_too_much_waits_for_a_search(more: int) -> None:
    body_filter = Shouting()
    relay, client, told = made(body_filter, 2 * MOST_WAITING)
    relay.body(b"slow\n\n", last=False)
    relay.body(b"a" * (MOST_WAITING - 2) + b"\n\n", last=False)
    relay.body(b"b" * more, last=False)
    assert told == ["paused"] * more
    body_filter.go_on.set()
    await relay.searched(is_cut=False)
    assert told == ["paused"] * more + ["begun"] + ["resumed"] * more
    assert len(client.body) == len("SLOW\n\n") + MOST_WAITING


@in_a_loop
async def test_what_is_searched_and_what_waits_for_that_count_as_held() -> None:
    body_filter = Shouting()
    relay, client, _ = made(body_filter, 2 * MOST_WAITING)
    relay.body(b"slow" * 5000, last=False)
    relay.body(b"a" * 7000, last=False)
    assert client.bodies.total == 27_000
    body_filter.go_on.set()
    await relay.searched(is_cut=False)
    assert client.bodies.total == 27_000  # by the filter: no event has ended
    relay.let_go()
    assert client.bodies.total == 0


@pytest.mark.parametrize("more", [b"", b"slow"])
@in_a_loop
async def test_what_was_held_of_a_body_that_was_cut_is_searched_where_it_belongs(more: bytes) -> None:
    body_filter = Shouting()
    body_filter.go_on.set()
    relay, client, _ = made(body_filter)
    relay.body(b"a\n\nb" + more, last=False)
    await relay.searched(is_cut=True)
    relay.truncate("upstream read error")
    assert client.body.startswith(b'A\n\ndata: {"error":{"message":"response truncated: upstream read error"')


@in_a_loop
async def test_a_rule_that_matches_in_a_thread_ends_the_answer_and_what_waited() -> None:
    body_filter = Shouting()
    relay, client, told = made(body_filter)
    relay.body(b"a\n\nslow X\n\n", last=False)
    relay.body(b"b\n\n", last=True)
    body_filter.go_on.set()
    await relay.searched(is_cut=False)
    assert (client.body, relay.refused, told) == (b"A\n\n", "no X here", ["begun", "abandoned"])


@in_a_loop
async def test_an_answer_that_is_let_go_while_it_is_searched_writes_nothing_more() -> None:
    body_filter = Shouting()
    relay, client, _ = made(body_filter)
    relay.body(b"slow\n\n", last=True)
    waiting = asyncio.ensure_future(relay.searched(is_cut=False))
    await asyncio.sleep(0)
    waiting.cancel()
    relay.truncate("account_halted")
    relay.let_go()
    got = client.got
    body_filter.go_on.set()
    while relay.is_searching:
        await asyncio.sleep(0)
    assert client.got == got
    assert b"SLOW" not in got


@pytest.mark.guarantee("P9")
@pytest.mark.limit("held_body_bytes")
@pytest.mark.parametrize("more", [0, 1])
def test_what_all_answers_hold_together_is_bounded(more: int) -> None:
    relay, client, told = made(Shouting())
    relay.body(b"a" * (_MOST_HELD + more), last=False)
    assert client.bodies.total == (0 if more else _MOST_HELD)
    assert (relay.refused, told) == ((TOO_MUCH_HELD, ["abandoned"]) if more else ("", []))
    relay.let_go()
    assert client.bodies.total == 0


def test_what_only_looks_looks_no_more_when_too_much_is_held() -> None:
    relay, client, _ = made(Shouting(holds=False))
    relay.body(b"a" * (_MOST_HELD + 1), last=False)
    relay.body(b"b", last=True)
    assert (client.body[-1:], relay.refused, relay.ended, client.bodies.total) == (b"b", "", True, 0)
