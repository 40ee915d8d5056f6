"""What model servers make of the chat interface, as the official SDK reads it at the other end of a runner's line.

A real gateway and a real runner; the server is the test's, byte by byte.
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.dialects import Reply, Say, ToolCall, chat_answer, chat_events
from tests.support.model_server import Answer, ModelServer, Visit, answering, whole
from tests.support.shared_model import SharedModels, served, shared_models
from tests.support.waiting import wait_until

GREET: Any = [{"role": "user", "content": "Hello?"}]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
LINE_BYTES = 64 * 1024
WELL = Say("all is well")


class Played:
    """Everything, up to the client."""

    def __init__(self, shared: SharedModels, server: ModelServer) -> None:
        self.laptop = shared.laptop(server.url, "tiny")
        self.answer: Answer = answering()
        self.shared = shared
        self.server = server
        self.client = openai.OpenAI(base_url=f"{shared.url}/v1", api_key="unused", max_retries=0)

    def stream(self, *pieces: bytes, **more: Any) -> list[Any]:
        """The SDK's chunks of an answer that the server sends in these pieces."""
        self.answer = answering(*pieces)
        return list(self.client.chat.completions.create(model="tiny", messages=GREET, stream=True, **more))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    async def answer(visit: Visit) -> None:
        await made.answer(visit)

    with served(answer) as server, shared_models(tmp_path_factory.mktemp("shared")) as shared:
        made = Played(shared, server)
        with made.client:
            yield made


def events(reply: Reply = WELL) -> list[bytes]:
    """One line for each."""
    return [b"data: " + json.dumps(data).encode() for _, data in chat_events(reply)]


def text(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def stream(*lines: bytes, end: bytes = b"\n\n", done: bytes = b"data: [DONE]") -> bytes:
    return b"".join(line + end for line in (*lines, done))


SPELLINGS = {
    "line ends are CRLF": HEAD + stream(*events(), end=b"\r\n\r\n"),
    "line ends are CR": HEAD + stream(*events(), end=b"\r\r"),
    "comments keep it alive": HEAD + stream(b": ping - 2031-12-31", *events(), b":", b": ping"),
    "empty lines keep it alive": HEAD + b"\n\n\n" + stream(*events(), end=b"\n\n\n\n"),
    "no space behind the colon": HEAD + stream(*(line.replace(b"data: ", b"data:") for line in events())),
    "events have names": HEAD + stream(*(b"event: message\n" + line for line in events())),
    "events have ids and times": HEAD + stream(b"retry: 500", *(b"id: 1\n" + line for line in events())),
    "a comment within an event": HEAD + stream(*(b"event: x\n: ping\n" + line for line in events())),
    "done has a space behind it": HEAD + stream(*events(), done=b"data: [DONE] "),
    "done has no space in it": HEAD + stream(*events(), done=b"data:[DONE]"),
    "done has no end": HEAD + stream(*events()).removesuffix(b"\n\n"),
    "something comes behind done": HEAD + stream(*events()) + b"data: {}\n\n",
    "HTTP/1.0": OLD + stream(*events()),
    "other answers come first": EARLY + HEAD + stream(*events()),
    "one chunk for each line": CHUNKED + b"".join(b"%x\r\n%b\n\n\r\n" % (len(e) + 2, e) for e in events())
    + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("how", SPELLINGS)
@pytest.mark.guarantee("S5")
def test_an_sdk_reads_a_stream_however_a_server_spells_it(played: Played, how: str) -> None:
    chunks = played.stream(SPELLINGS[how])
    assert text(chunks) == "all is well"
    assert chunks[-1].usage.completion_tokens == 7  # comes behind the event that ends the choice


@pytest.mark.guarantee("S5")
@pytest.mark.parametrize("done", [b"data: [DONE]", b"data:[DONE]", b"data: [DONE] ", b"data:  [DONE]"])
def test_nothing_follows_the_done_of_a_server(played: Played, done: bytes) -> None:
    played.answer = answering(HEAD + stream(b"event: x\ndata: {}", b": ping", done=done))
    with played.client.chat.completions.with_streaming_response.create(
        model="tiny", messages=GREET, stream=True
    ) as answer:
        assert b"".join(answer.iter_bytes()) == b"event: x\ndata: {}\n\n: ping\n\n%b\n\n" % done


def test_a_stream_may_come_byte_by_byte(played: Played) -> None:
    whole_stream = HEAD + stream(*events())
    assert text(played.stream(*(whole_stream[at : at + 1] for at in range(len(whole_stream))))) == "all is well"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + stream(*events(), done=b""),
        HEAD + stream(*events()[:2], done=b"") + b'data: {"choi',
        CHUNKED + b"%x\r\n%b\n\n\r\n" % (len(events()[0]) + 2, events()[0]),
        OLD + stream(*events(), done=b""),
    ],
)
@pytest.mark.guarantee("S5")
def test_a_stream_that_ends_without_done_is_told_as_truncated(played: Played, answer: bytes) -> None:
    with pytest.raises(openai.APIError, match="response truncated: runner_upstream_read_error"):
        played.stream(answer)


def test_an_error_that_the_server_tells_within_its_stream_is_the_clients(played: Played) -> None:
    with pytest.raises(openai.APIError, match="out of memory"):
        played.stream(HEAD + stream(events()[0], b'data: {"error":{"message":"out of memory"}}'))


@pytest.mark.guarantee("N5", "S7")
@pytest.mark.parametrize("more", [0, 1])
def test_a_tool_call_has_64_kib_in_one_line_and_no_more(played: Played, more: int) -> None:
    def called(size: int) -> list[bytes]:
        return events(ToolCall("write", {"text": "x" * size}))

    size = LINE_BYTES - len(called(0)[2]) + more  # the line that has the arguments
    answer = HEAD + stream(*called(size))
    if more:
        with pytest.raises(openai.APIError, match="response truncated: runner_frame_too_large"):
            played.stream(answer)
    else:
        calls = [
            call for each in played.stream(answer) if each.choices for call in each.choices[0].delta.tool_calls or ()
        ]
        assert json.loads("".join(call.function.arguments for call in calls)) == {"text": "x" * size}


@pytest.mark.guarantee("N5", "S7")
@pytest.mark.parametrize("more", [0, 1])
def test_a_prompt_has_1_mib_and_no_more(played: Played, more: int) -> None:
    def body(words: str) -> dict[str, Any]:
        return {"model": "tiny", "messages": [{"role": "user", "content": words}]}

    def ask(words: str) -> Any:
        return played.client.post("/chat/completions", cast_to=object, body=body(words))

    played.answer = answering(whole(json.dumps(chat_answer(Say("read"))).encode()))
    ask("")
    words = "x" * (1024 * 1024 - len(played.server.visits[-1].body) + more)
    before = len(played.server.visits)
    if more:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(words)
        assert (caught.value.status_code, caught.value.code) == (413, "runner_request_too_large")
        assert len(played.server.visits) == before
    else:
        assert ask(words)["choices"][0]["message"]["content"] == "read"
        assert len(played.server.visits[-1].body) == 1024 * 1024


ANSWER = json.dumps(chat_answer(WELL), indent=2).encode() + b"\n"
WHOLE = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + ANSWER,
    "until it closes": b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + ANSWER,
    "in chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(ANSWER), ANSWER),
    "after others": EARLY + whole(ANSWER),
    "as another type": whole(ANSWER, more=b"content-type: text/plain\r\n"),
}


@pytest.mark.parametrize("how", WHOLE)
def test_an_sdk_reads_a_completion_however_a_server_frames_it(played: Played, how: str) -> None:
    played.answer = answering(WHOLE[how])
    completion = played.client.chat.completions.create(model="tiny", messages=GREET)
    assert completion.choices[0].message.content == "all is well"


@pytest.mark.parametrize(
    ("answer", "streamed"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b", True),
        (whole(ANSWER), True),
        (HEAD + stream(*events()), False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
    ],
)
def test_an_answer_that_was_not_asked_for_is_a_502_in_every_case(played: Played, answer: bytes, streamed: bool) -> None:
    played.answer = answering(answer)
    with pytest.raises(openai.InternalServerError) as caught:
        played.client.chat.completions.create(model="tiny", messages=GREET, stream=streamed)
    assert (caught.value.status_code, caught.value.code) == (502, "runner_upstream_read_error")


@pytest.mark.guarantee("S7")
@pytest.mark.parametrize("more", [0, 1])
def test_a_completion_has_64_kib_and_a_longer_one_is_not_made_twice(played: Played, more: int) -> None:
    size = LINE_BYTES - len(json.dumps(chat_answer(Say("")))) + more
    played.answer = answering(whole(json.dumps(chat_answer(Say("x" * size))).encode()))
    before, client = len(played.server.visits), played.client.with_options(max_retries=2)
    if more:
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="tiny", messages=GREET)
        assert (caught.value.status_code, caught.value.code) == (502, "runner_frame_too_large")
    else:
        completion = client.chat.completions.create(model="tiny", messages=GREET)
        assert completion.choices[0].message.content == "x" * size
    assert len(played.server.visits) == before + 1


def test_a_server_that_has_ended_is_a_502_that_says_where(played: Played) -> None:
    with served(answering(), "gone") as other:
        words = ("--url", other.url, "--register", f"gone@{other.url}")
        assert played.laptop.command("models", *words).returncode == 0
        wait_until(
            lambda: "gone" in [each.id for each in played.client.models.list()]
        )  # the listener looks for new names
    with pytest.raises(openai.InternalServerError, match="cannot be reached on the runner's machine") as caught:
        played.client.chat.completions.create(model="gone", messages=GREET)
    assert (caught.value.status_code, caught.value.code) == (502, "runner_upstream_unavailable")


@pytest.mark.guarantee("N6")
def test_a_server_sees_nothing_of_the_client_but_the_body(played: Played) -> None:
    played.answer = answering(whole(ANSWER))
    played.client.chat.completions.create(
        model="tiny",
        messages=GREET,
        extra_headers={"x-secret": "of the client", "cookie": "a=b"},
        extra_query={"a": "b"},
    )
    visit = played.server.visits[-1]
    assert visit.head.split(b"\r\n") == [
        b"POST /v1/chat/completions HTTP/1.1",
        b"host: 127.0.0.1:%d" % played.server.port,
        b"content-type: application/json",
        b"accept: application/json, text/event-stream",
        b"accept-encoding: identity",
        b"content-length: %d" % len(visit.body),
        b"connection: close",
        b"",
        b"",
    ]
