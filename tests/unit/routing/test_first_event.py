"""The look at an event stream's beginning, before a chain commits to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.routing.first_event import FIRST_EVENT_BYTES, FirstEvent, Verdict

CHUNK = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
OPENAI_ERROR = b'data: {"error":{"message":"overloaded","code":"server_error"}}\n\n'
ANTHROPIC_ERROR = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
COMMENT = b": OPENROUTER PROCESSING\n\n"


def verdict_of(stream: bytes, limit: int = FIRST_EVENT_BYTES) -> Verdict:
    return FirstEvent(limit).receive(stream)


@pytest.mark.parametrize(
    "stream",
    [
        CHUNK,
        COMMENT * 3 + CHUNK,
        b"event: message_start\ndata: {}\n\n",
        b"event: ping\r\ndata: {}\r\n\r\n",
        b"data: [DONE]\n\n",
        b"data: hello\n\n",
        b'data: {"error":null,"choices":[]}\n\n',
        b'data: [{"error":{}}]\n\n',
        b"data:" + b"[" * 5000 + b"\n\n",
        b"data: \xff\xfe\n\n",
        b"data\n\n",
        CHUNK + OPENAI_ERROR,
        b"event: errors\ndata: {}\n\n",
        b"event: error\nevent: message\ndata: {}\n\n",
    ],
)
def test_a_stream_that_begins_with_content_is_committed_to(stream: bytes) -> None:
    assert verdict_of(stream) is Verdict.COMMIT


@pytest.mark.parametrize(
    "stream",
    [
        OPENAI_ERROR,
        ANTHROPIC_ERROR,
        COMMENT + OPENAI_ERROR,
        b"\xef\xbb\xbf" + OPENAI_ERROR,
        b"\n\n\n" + ANTHROPIC_ERROR,
        b"retry: 3000\n\n" + ANTHROPIC_ERROR,
        b"id: 7\n\n" + ANTHROPIC_ERROR,
        ANTHROPIC_ERROR.replace(b"\n", b"\r\n"),
        ANTHROPIC_ERROR.replace(b"\n", b"\r"),
        b"event:error\ndata:x\n\n",
        b"event: error\n\n",
        b'data: {"error":"no"}\n\n',
        b'data: {"type":"error","message":"no"}\n\n',
        b'data: {"error":\ndata: {"message":"in two lines"}}\n\n',
        b': keep-alive\ndata: {"error":{"code":1}}\n\n',
        OPENAI_ERROR + CHUNK,
    ],
)
def test_a_stream_that_begins_with_an_error_has_failed(stream: bytes) -> None:
    assert verdict_of(stream) is Verdict.FAILED


@pytest.mark.parametrize("stream", [b"", COMMENT, COMMENT * 9, CHUNK[:-1], ANTHROPIC_ERROR[:-1], b"event: error\r\n"])
def test_without_a_whole_event_nothing_is_decided_until_the_stream_ends(stream: bytes) -> None:
    first = FirstEvent()
    assert first.receive(stream) is Verdict.UNDECIDED
    assert first.end() is Verdict.FAILED
    assert first.verdict is Verdict.FAILED


def test_a_verdict_once_given_stays() -> None:
    first = FirstEvent()
    assert first.receive(CHUNK) is Verdict.COMMIT
    assert first.receive(OPENAI_ERROR) is Verdict.COMMIT
    assert first.end() is Verdict.COMMIT


@pytest.mark.parametrize(("length", "verdict"), [(-1, Verdict.FAILED), (0, Verdict.FAILED), (1, Verdict.COMMIT)])
def test_an_error_that_ends_behind_the_window_is_not_waited_for(length: int, verdict: Verdict) -> None:
    padding = FIRST_EVENT_BYTES + length - len(OPENAI_ERROR) - 3
    stream = b":" + b"x" * padding + b"\n\n" + OPENAI_ERROR
    assert len(stream) == FIRST_EVENT_BYTES + length
    assert verdict_of(stream) is verdict


@pytest.mark.parametrize(("length", "verdict"), [(-1, Verdict.UNDECIDED), (0, Verdict.COMMIT), (1, Verdict.COMMIT)])
def test_a_window_full_of_comments_is_committed_to(length: int, verdict: Verdict) -> None:
    assert verdict_of(b": " + b"x" * (FIRST_EVENT_BYTES + length - 2)) is verdict


LINE_ENDS = (b"\r", b"\n", b"\r\n")
FRAGMENTS = (b":", b": c", b"data: ", b"data:{}", b"event: error", b"x", b"\xef\xbb\xbf")
EVENTS = (CHUNK, OPENAI_ERROR, ANTHROPIC_ERROR.replace(b"\n", b"\r"), COMMENT.replace(b"\n", b"\r\n"))
PIECES = st.sampled_from((*LINE_ENDS, *FRAGMENTS, *EVENTS))


@given(st.lists(PIECES, max_size=12).map(b"".join), st.data())
def test_any_splitting_gives_the_same_verdict(stream: bytes, data: st.DataObject) -> None:
    limit = data.draw(st.sampled_from([16, 40, 64, FIRST_EVENT_BYTES]))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    first = FirstEvent(limit)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        first.receive(stream[start:end])
    byte_by_byte = FirstEvent(limit)
    for at in range(len(stream)):
        byte_by_byte.receive(stream[at : at + 1])
    assert first.verdict is byte_by_byte.verdict is FirstEvent(limit).receive(stream)
