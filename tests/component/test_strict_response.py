"""Upstreams that lie about their own response: a status or a visible cut, never their bytes in another's place."""

import gzip
from dataclasses import replace

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from tests.support.door import KEY, Door, candidate
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream, UpstreamPeer, begin

OK = b"HTTP/1.1 200 OK\r\n"
TWO = b"Content-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
MARK = b"LEAKED"


def next_request_is_served(door: Door, upstream: Upstream, last: UpstreamPeer | None) -> None:
    """On a connection of its own when the last one is not to be trusted any more (`last` is None)."""
    with door.tunnel() as client:
        client.send(GET_MODELS)
        peer = last if last is not None else upstream.accept()
        peer.request()
        peer.respond(b'{"own":1}')
        answer = client.answer()
        assert (answer.status, answer.body, answer.complete) == (200, b'{"own":1}', True)


BAD_HEADS = {
    "NUL in the reason": b"HTTP/1.1 200 LEAKED\x00\r\n" + TWO,
    "escape in the reason": b"HTTP/1.1 200 LEAKED\x1b[31m\r\n" + TWO,
    "CR in the reason": b"HTTP/1.1 200 O\rLEAKED\r\n" + TWO,
    "LF behind the status": b"HTTP/1.1 200 OK\nLEAKED: 1\r\n" + TWO,
    "LF behind a field": OK + b"LEAKED: 1\n" + TWO,
    "LF at the end of the head": OK + b"LEAKED: 1\r\nContent-Length: 2\r\n\n{}",
    "CR in a value": OK + b"X: a\rLEAKED: b\r\n" + TWO,
    "two CR": OK + b"LEAKED: a\r\r\n" + TWO,
    "NUL in a value": OK + b"LEAKED: \x00\r\n" + TWO,
    "NUL in a name": OK + b"LEAKED\x00: 1\r\n" + TWO,
    "escape in a value": OK + b"LEAKED: \x1b[2J\r\n" + TWO,
    "DEL in a value": OK + b"LEAKED: \x7f\r\n" + TWO,
    "a folded value": OK + b"LEAKED: 1\r\n\tLEAKED\r\n" + TWO,
    "a folded first line": OK + b" LEAKED: 1\r\n" + TWO,
    "no colon": OK + b"LEAKED\r\n" + TWO,
    "no name": OK + b": LEAKED\r\n" + TWO,
    "a space before the colon": OK + b"LEAKED : 1\r\n" + TWO,
    "bytes above ASCII in a name": OK + b"LEAKED\xff: 1\r\n" + TWO,
}


@pytest.mark.guarantee("R2", "R9")
@pytest.mark.parametrize("form", BAD_HEADS)
def test_a_malformed_head_is_502_and_nothing_of_it_leaks(door: Door, upstream: Upstream, form: str) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(BAD_HEADS[form])
        answer = client.answer()
        assert (answer.status, answer.status_line) == (502, b"HTTP/1.1 502 Bad Gateway")
        assert answer.body == b'{"error":"inference service error"}'
        assert MARK not in b"".join(name + value for name, value in answer.fields)
        assert peer.wait_closed()
    next_request_is_served(door, upstream, None)


BAD_FRAMES = {
    "status 099": b"HTTP/1.1 099 X\r\n" + TWO,
    "status 000": b"HTTP/1.1 000 X\r\n" + TWO,
    "status 20": b"HTTP/1.1 20 X\r\n" + TWO,
    "status 2000": b"HTTP/1.1 2000 X\r\n" + TWO,
    "status 600": b"HTTP/1.1 600 X\r\n" + TWO,
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n" + TWO,
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\n" + TWO,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + TWO,
    "another protocol": b"ICY 200 OK\r\n" + TWO,
    "gzip, chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked, gzip": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "gzip": OK + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "identity": OK + b"Transfer-Encoding: identity\r\n\r\n{}",
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked, chunked": OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ", chunked": OK + b"Transfer-Encoding: ,chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "length, then chunked": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "chunked, then length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    "two equal lengths": OK + b"Content-Length: 2\r\n" + TWO,
    "a list of lengths": OK + b"Content-Length: 2, 2\r\n\r\n{}",
    "a negative length": OK + b"Content-Length: -2\r\n\r\n{}",
    "a hexadecimal length": OK + b"Content-Length: 0x2\r\n\r\n{}",
    "a length with an underscore": OK + b"Content-Length: 1_0\r\n\r\n{}",
    "a length without digits": OK + b"Content-Length: \r\n\r\n{}",
    "a length beyond 64 bits": OK + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "switching protocols behind a hint": b"HTTP/1.1 103 Hint\r\n\r\nHTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n",
}


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize("form", BAD_FRAMES)
def test_a_head_that_frames_nothing_clearly_is_502(door: Door, upstream: Upstream, form: str) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(BAD_FRAMES[form])
        answer = client.answer()
        assert (answer.status, answer.body) == (502, b'{"error":"inference service error"}')
        assert peer.wait_closed()
    next_request_is_served(door, upstream, None)


BAD_BODIES = {
    "a chunk size with 0x": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a negative chunk size": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"\r\n{}\r\n0\r\n\r\n",
    "a chunk size with a space": CHUNKED + b"2 \r\n{}\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"fffffffffffffffff\r\n{}",
    "a chunk size ended by LF": CHUNKED + b"2\n{}\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\n{}X\r\n0\r\n\r\n",
    "a chunk ended by LF": CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "endless chunk extensions": CHUNKED + b"2;" + b"x" * 200_000,
    "endless trailers": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: 1\r\n" * 40_000,
    "one endless trailer": CHUNKED + b"2\r\n{}\r\n0\r\nX: " + b"x" * 200_000,
    "the end before the length": OK + b"Content-Length: 3\r\n\r\n{}",
    "the end before the last chunk": CHUNKED + b"2\r\n{}\r\n",
    "the end within the last line": CHUNKED + b"2\r\n{}\r\n0\r\n",
}


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize("form", BAD_BODIES)
def test_a_body_that_breaks_its_framing_is_cut_for_all_to_see(door: Door, upstream: Upstream, form: str) -> None:
    data = BAD_BODIES[form]
    head, _, body = data.partition(b"\r\n\r\n")
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(head + b"\r\n\r\n")
        # In two reads, so that what has no end is not merely one read of that size.
        peer.send(body[: len(body) // 2])
        peer.send(body[len(body) // 2 :])
        if form.startswith("the end"):
            peer.close()
        answer = client.answer()
        assert (answer.status, answer.complete) == (200, False)
        assert answer.body in (b"", b"{}")
        assert client.read_to_end() == b""
        if not form.startswith("the end"):
            assert peer.wait_closed()
    next_request_is_served(door, upstream, None)


BEHIND = {
    "garbage": b"garbage",
    "a response with another status": b"HTTP/1.1 500 LEAKED\r\nContent-Length: 2\r\n\r\nno",
    "a response with both framings": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "switching protocols": b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "a NUL": b"\x00",
    "the rest of a body longer than its length": b"}" * 100,
}
WHOLE = {
    "kept": OK + TWO,
    "to be closed": OK + b"Connection: close\r\n" + TWO,
    "chunked": CHUNKED + b"2\r\n{}\r\n0\r\n\r\n",
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + TWO,
}


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("behind", BEHIND)
def test_bytes_behind_a_whole_response_cost_the_connection_and_not_the_response(
    door: Door, upstream: Upstream, whole: str, behind: str
) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(WHOLE[whole] + BEHIND[behind])
        answer = client.answer()
        assert (answer.status_line, answer.body, answer.complete) == (b"HTTP/1.1 200 OK", b"{}", True)
        assert peer.wait_closed()
        client.send(GET_MODELS)
        again = upstream.accept()
        again.request()
        again.respond(b'{"own":1}')
        assert client.answer().body == b'{"own":1}'


@pytest.mark.guarantee("R9")
def test_a_body_behind_204_reaches_nobody(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 204 None\r\n" + TWO)
        answer = client.answer()
        assert (answer.status, answer.body) == (204, b"")
        assert peer.wait_closed()
    next_request_is_served(door, upstream, None)


def sized_head(size: int, *, interim: int = 0) -> bytes:
    """A response whose heads have `size` bytes together."""
    hints = b"HTTP/1.1 103 Hint\r\n\r\n" * interim
    rest = hints + OK + b"X: \r\nContent-Length: 2\r\n\r\n"
    return rest.replace(b"X: ", b"X: " + b"a" * (size - len(rest))) + b"{}"


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize("interim", [0, 3])
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("cut", [1, 30_000, 65_536, 65_540])
def test_a_head_may_have_64_kib_however_it_is_cut(interim: int, extra: int, cut: int) -> None:
    # A small limit, so that one read can deliver more than all of it on any machine.
    limits = replace(DEFAULT_LIMITS, response_head_bytes=1024)
    data = sized_head(1024 + extra, interim=interim)
    cut = cut * 1024 // 65_536 or 1
    with Upstream() as upstream, Door(candidate(upstream.url), limits=limits) as door, door.plain() as client:
        peer = begin(client, upstream)
        peer.send(data[:cut])
        peer.send(data[cut:])
        assert client.answer().status == (502 if extra else 200)


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize(("fields", "status"), [(256, 200), (257, 502)])
def test_a_head_may_have_256_fields(door: Door, upstream: Upstream, fields: int, status: int) -> None:
    with door.plain() as client:
        begin(client, upstream).send(OK + b"X: 1\r\n" * (fields - 1) + TWO)
        assert client.answer().status == status


@pytest.mark.guarantee("R9")
@pytest.mark.parametrize(("hints", "status"), [(100, 200), (101, 502)])
def test_100_interim_responses_may_come_first(door: Door, upstream: Upstream, hints: int, status: int) -> None:
    with door.plain() as client:
        begin(client, upstream).send(b"HTTP/1.1 103 Hint\r\n\r\n" * hints + OK + TWO)
        assert client.answer().status == status


@pytest.mark.guarantee("R1", "R12")
def test_fields_that_connection_names_end_here_and_what_describes_the_body_does_not(
    door: Door, upstream: Upstream
) -> None:
    body = gzip.compress(b"{}")
    with door.tunnel() as client:
        client.send(
            post(
                fields=b"Connection: User-Agent, content-type\r\nuser-AGENT: x\r\nContent-Type: a/b\r\nAccept: c/d\r\n"
            )
        )
        peer = upstream.accept()
        request = peer.request()
        assert request.value(b"user-agent") is None
        assert (request.value(b"content-type"), request.value(b"accept")) == (b"a/b", b"c/d")
        peer.send(
            OK + b"Connection: x-one, Content-Encoding\r\nCONNECTION: X-Two\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\n"
            b"Content-Encoding: gzip\r\nX-Openshell-Mock: true\r\nx-pointsman-attempts: 9\r\nProxy-Authenticate: x\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        answer = client.answer()
    assert [answer.value(name) for name in (b"x-one", b"x-two", b"x-openshell-mock", b"proxy-authenticate")] == [
        None
    ] * 4
    assert (answer.value(b"x-three"), answer.value(b"x-pointsman-attempts")) == (b"3", b"1")
    assert answer.value(b"content-encoding") == b"gzip"
    assert gzip.decompress(answer.body) == b"{}"


CODINGS = {
    "gzip": b"Content-Encoding: gzip\r\n",
    "br": b"Content-Encoding: br\r\n",
    "gzip and identity": b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n",
    "two codings": b"Content-Encoding: br, gzip\r\n",
    "upper case": b"CONTENT-ENCODING: GZIP\r\n",
}


@pytest.mark.guarantee("R12")
@pytest.mark.parametrize("coding", CODINGS)
def test_an_encoded_stream_that_is_cut_gets_no_event_in_clear(door: Door, upstream: Upstream, coding: str) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events(CODINGS[coding])
        peer.chunk(b"\x1f\x8b\x08\x00\x00")
        peer.close()
        answer = client.answer()
    assert answer.body == b"\x1f\x8b\x08\x00\x00"
    assert not answer.complete
    assert [value for name, value in answer.fields if name.lower() == b"content-encoding"] == [
        line.split(b": ")[1] for line in CODINGS[coding].split(b"\r\n") if line
    ]


@pytest.mark.guarantee("R12")
@pytest.mark.parametrize(
    ("content_type", "events"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream; charset=utf-8", True),
        (b"text/event-stream ;x=y", True),
        (b"text/event-streams", False),
        (b"text/event-stream-x", False),
        (b"application/json", False),
    ],
)
def test_only_an_event_stream_gets_an_event(door: Door, upstream: Upstream, content_type: bytes, events: bool) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(OK + b"Content-Type: " + content_type + b"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n")
        peer.close()
        answer = client.answer()
    assert (b"proxy_stream_error" in answer.body, answer.complete) == (events, events)


NAMES = {
    "line ends": "model\r\nX-Forged: 1",
    "a line feed": "model\nX-Forged: 1",
    "a NUL and an escape": "model\x00\x1b[31m",
    "beyond ASCII": "модель\u2028x",
}


@pytest.mark.guarantee("R13", "K9")
@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_out_of_its_header_line_or_its_log_line(upstream: Upstream, name: str) -> None:
    text = NAMES[name]
    with Door(candidate(upstream.url, model=text, route=text)) as door, door.tunnel() as client:
        client.send(post(fields=b"X-Request-Id: a\r\nX-Pointsman-Request-Id: forged\r\n"))
        peer = upstream.accept()
        assert peer.request().value(b"x-request-id") is None
        peer.respond()
        answer = client.answer()
        log = door.logged()
        events = door.ocsf.getvalue()
    assert answer.value(b"x-forged") is None
    for field in (b"x-pointsman-model", b"x-pointsman-route"):
        value = answer.value(field)
        assert value is not None
        assert value.isascii()
        assert value.decode().isprintable()
    assert answer.value(b"x-pointsman-request-id") not in (None, b"forged")
    told = [*log.splitlines(), *events.splitlines()]
    assert len(told) == 4, "a request is told when it is read and when it has ended"
    assert all(line.isprintable() for line in told)
    assert log.count("\n") == events.count("\n") == 2


@pytest.mark.guarantee("R13")
@pytest.mark.parametrize("status", [301, 404, 429, 500])
def test_an_error_of_the_upstream_keeps_its_fields_in_their_lines(door: Door, upstream: Upstream, status: int) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 %d X\r\nX-Request-Id: a%%0d%%0aX-Forged: 1\r\nContent-Length: 0\r\n\r\n" % status)
        answer = client.answer()
    assert answer.value(b"x-request-id") == b"a%0d%0aX-Forged: 1"
    assert answer.value(b"x-forged") is None


@pytest.mark.guarantee("K3")
@pytest.mark.parametrize(("status", "line"), [(401, b"HTTP/1.1 401 Unauthorized"), (403, b"HTTP/1.1 403 Forbidden")])
def test_a_refusal_that_echoes_the_key_in_its_head_is_cleaned_of_it(
    door: Door, upstream: Upstream, status: int, line: bytes
) -> None:
    key = KEY.encode()
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(
            b"HTTP/1.1 %d Incorrect API key %b\r\nX-Debug: got %b!\r\nX-Request-Id: r1\r\nContent-Length: 0\r\n\r\n"
            % (status, key, key)
        )
        answer = client.answer()
    assert answer.status_line == line
    assert answer.value(b"x-debug") is None
    assert answer.value(b"x-request-id") == b"r1"
