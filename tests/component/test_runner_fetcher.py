"""What a runner makes of a model server's answer: real sockets, a server that the test plays."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import uvloop

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.runner.fetcher import Fetch
from pointsman.wire.runner_frames import START, ModelRequest, ModelResponse
from tests.support.model_server import EVENT_STREAM, Visit, answering, model_server, whole
from tests.support.ports import free_ports

_STREAM = b'{"model":"tiny","stream":true}'
_PLAIN = b'{"model":"tiny"}'
QUICK = replace(DEFAULT_RUNNER_LIMITS, connect_seconds=2.0, idle_seconds=0.3)
Outcome = tuple[int, str, bool, str]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def start(url: str, body: bytes = _STREAM) -> ModelRequest:
    return ModelRequest("r", START, "id", url, msgspec.Raw(body))


def outcome(frame: ModelResponse) -> Outcome:
    return frame.status, frame.data, frame.done, frame.error


async def frames(url: str, body: bytes = _STREAM, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> list[Outcome]:
    fetch, found = Fetch(start(url, body), limits), []
    try:
        while True:
            found.append(outcome(frame := await fetch.frame()))
            if frame.ends:
                return found
    finally:
        fetch.close()


def answered(*pieces: bytes, body: bytes = _STREAM, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> list[Outcome]:
    """The frames of an answer that a server sends in these pieces."""

    async def main() -> list[Outcome]:
        async with model_server(answering(*pieces)) as server:
            return await frames(server.url, body, limits)

    found: list[Outcome] = run(main())
    return found


def failed(status: int, code: str) -> Outcome:
    return status, "", True, code


READ_ERROR = failed(502, "runner_upstream_read_error")
TOO_LARGE = failed(502, "runner_frame_too_large")
DONE = (200, "data: [DONE]", True, "")


def line(data: str) -> Outcome:
    return 200, data, False, ""


@pytest.mark.guarantee("S5")
def test_a_stream_comes_line_by_line_and_done_travels_on_its_last() -> None:
    stream = b": warm\n\ndata: 1\r\n\r\ndata: \xc3\xa9\r\rdata: [DONE]\n\nignored"
    assert answered(EVENT_STREAM, stream) == [line(": warm"), line("data: 1"), line("data: é"), DONE]


@pytest.mark.parametrize("end", [b"", b"data: {", b"data: [DON"])
def test_a_stream_that_ends_without_done_was_cut(end: bytes) -> None:
    assert answered(EVENT_STREAM, b"data: 1\n\n", end) == [line("data: 1"), READ_ERROR]


def test_done_needs_no_end_of_its_line() -> None:
    assert answered(EVENT_STREAM, b"data: 1\n\ndata: [DONE]") == [line("data: 1"), DONE]


def test_a_chunked_stream_that_breaks_off_is_a_read_error() -> None:
    head = EVENT_STREAM.replace(b"connection: close", b"transfer-encoding: chunked")
    assert answered(head, b"9\r\ndata: 1\n\n\r\n", b"9\r\ndata") == [line("data: 1"), READ_ERROR]
    assert answered(head, b"9\r\ndata: 1\n\n\r\n", b"zz\r\n")[-1] == READ_ERROR


def test_what_is_not_utf_8_is_a_read_error() -> None:
    assert answered(EVENT_STREAM, b"data: \xff\n\n") == [READ_ERROR]


def test_a_completion_is_one_frame_that_ends_the_answer() -> None:
    body = b'{\n "choices": []\n}'
    assert answered(whole(body), body=_PLAIN) == [(200, body.decode(), True, "")]


@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"429 Slow", b"500 Oops", b"503 Loading"])
def test_a_refusal_keeps_its_status_and_none_of_its_words(status: bytes) -> None:
    assert answered(whole(b"secret path", status)) == [failed(int(status[:3]), "runner_upstream_error")]


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"304 Same", b"307 Elsewhere", b"308 Moved"])
@pytest.mark.guarantee("N6")
def test_a_redirect_is_not_followed(status: bytes) -> None:
    async def main() -> tuple[list[Outcome], int]:
        async with model_server(answering(whole(b"{}"))) as other:
            place = b"location: " + other.url.encode() + b"/chat/completions\r\n"
            async with model_server(answering(whole(b"", status, place))) as server:
                return await frames(server.url), len(other.visits)

    assert run(main()) == ([failed(502, "runner_upstream_error")], 0)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (whole(b"{}"), _STREAM),
        (EVENT_STREAM + b"data: 1\n\n", _PLAIN),
        (whole(b"{}", more=b"content-type: application/json\r\ncontent-encoding: gzip\r\n"), _PLAIN),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", _PLAIN),
        (b"220 mail.example ready\r\n", _PLAIN),
        (b"", _PLAIN),
    ],
)
def test_an_answer_of_another_kind_than_was_asked_for_is_a_read_error(answer: bytes, body: bytes) -> None:
    assert answered(answer, body=body) == [READ_ERROR]


@pytest.mark.parametrize(("size", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.guarantee("N5", "S7")
@pytest.mark.limit("runner.data_bytes")
def test_the_bound_of_a_line(size: int, passes: bool) -> None:
    data = "data: " + "x" * (DEFAULT_RUNNER_LIMITS.data_bytes + size - 6)
    expected = [line(data), DONE] if passes else [TOO_LARGE]
    assert answered(EVENT_STREAM, data.encode() + b"\n\n", b"data: [DONE]\n\n") == expected


@pytest.mark.parametrize(("size", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.guarantee("N5", "S7")
@pytest.mark.limit("runner.data_bytes")
def test_the_bound_of_a_completion(size: int, passes: bool) -> None:
    body = b'"' + b"x" * (DEFAULT_RUNNER_LIMITS.data_bytes + size - 2) + b'"'
    assert answered(whole(body), body=_PLAIN) == ([(200, body.decode(), True, "")] if passes else [TOO_LARGE])


@pytest.mark.parametrize("character", ['"', "\\", "\x01", "\t", "\x7f", "é"])
def test_the_bound_of_a_line_is_the_same_whatever_it_consists_of(character: str) -> None:
    data = character * (DEFAULT_RUNNER_LIMITS.data_bytes // len(character.encode()))
    assert answered(EVENT_STREAM, data.encode() + b"\n\ndata: [DONE]\n\n") == [line(data), DONE]
    assert answered(EVENT_STREAM, data.encode() + b"x\n\ndata: [DONE]\n\n") == [TOO_LARGE]


@pytest.mark.parametrize(("size", "last"), [(29, DONE), (28, DONE), (27, failed(502, "runner_response_limit"))])
@pytest.mark.limit("runner.response_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_all_data(size: int, last: Outcome) -> None:
    limits = replace(DEFAULT_RUNNER_LIMITS, response_bytes=size)
    stream = b"data: 12\n\ndata: 34\n\ndata: [DONE]\n\n"
    assert answered(EVENT_STREAM, stream, limits=limits)[-1] == last


@pytest.mark.guarantee("N6")
def test_the_request_is_the_same_whatever_the_body_and_the_body_comes_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"model" : "tiny",\n"x":1.50, "y":"\\u00e9\xc3\xa9"}'
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def main() -> tuple[list[Outcome], int, list[Visit]]:
        async with model_server(answering(whole(b"{}"))) as server:
            return await frames(server.url, body), server.port, server.visits

    found, port, visits = run(main())
    assert found == [(200, "{}", True, "")]
    assert [visit.body for visit in visits] == [body]
    assert visits[0].head == (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\naccept-encoding: identity\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n" % (port, len(body))
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_localhost_is_either_loopback_address(host: str) -> None:
    async def main() -> tuple[list[Outcome], bytes, int]:
        async with model_server(answering(whole(b"{}")), host) as server:
            return await frames(f"http://localhost:{server.port}/v1", _PLAIN), server.visits[0].head, server.port

    found, head, port = run(main())
    assert found == [(200, "{}", True, "")]
    assert b"\r\nhost: localhost:%d\r\n" % port in head


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_where_nobody_listens_the_server_is_unavailable(host: str) -> None:
    url = f"http://{host}:{free_ports(1)[0]}/v1"
    assert run(frames(url)) == [failed(502, "runner_upstream_unavailable")]


@pytest.mark.guarantee("S7")
def test_a_server_that_is_silent_before_or_within_its_answer_times_out() -> None:
    async def main(*pieces: bytes) -> list[Outcome]:
        async def answer(visit: Visit) -> None:
            for piece in pieces:
                await visit.send(piece)
            await visit.gone()

        async with model_server(answer) as server:
            return await frames(server.url, limits=QUICK)

    late = failed(504, "runner_proxy_timeout")
    assert run(main()) == [late]
    assert run(main(EVENT_STREAM)) == [late]
    assert run(main(EVENT_STREAM, b"data: 1\n\ndata: 2")) == [line("data: 1"), late]


@pytest.mark.guarantee("S5")
def test_nothing_is_read_that_was_not_asked_for_and_nothing_is_lost_by_it() -> None:
    """The server's writes stop long before it has written all, however long nobody asks."""
    row = b"data: " + b"x" * 1017 + b"\n"

    async def main() -> tuple[int, int, int]:
        written = 0
        stuck = asyncio.Event()

        async def answer(visit: Visit) -> None:
            nonlocal written
            visit.writer.transport.set_write_buffer_limits(0)
            await visit.send(EVENT_STREAM)
            for _ in range(32 * 1024):
                visit.writer.write(row)
                written += 1
                if visit.writer.transport.get_write_buffer_size() > 0:
                    stuck.set()
                await visit.writer.drain()

        async with model_server(answer) as server:
            fetch = Fetch(start(server.url), replace(DEFAULT_RUNNER_LIMITS, response_bytes=1 << 30))
            first = await fetch.frame()
            assert first.data == row.decode().strip()
            await stuck.wait()
            before = written
            for _ in range(200):
                await asyncio.sleep(0)
            while_waiting = written - before
            for _ in range(before + 1000):
                assert (await fetch.frame()).data == first.data
            fetch.close()
            return before, while_waiting, written - before

    before, while_waiting, after = run(main())
    assert before < 16 * 1024
    assert while_waiting == 0
    assert after > 0
