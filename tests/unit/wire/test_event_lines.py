"""Lines of an event stream: what a runner sends its gateway, one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.event_lines import EventEnds, EventLines, LineTooLong, is_done

_LIMIT = 12


def lines(*reads: bytes, limit: int = _LIMIT) -> tuple[list[bytes], str | bytes]:
    """The lines of a stream that came in these reads, and how it ended."""
    reader, found = EventLines(limit), []
    try:
        for read in reads:
            reader.receive(read)
            while (line := reader.next_line()) is not None:
                found.append(line)
    except LineTooLong:
        return found, "too long"
    return found, reader.rest()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_end_of_a_line_ends_it_and_is_not_part_of_it(end: bytes) -> None:
    stream = end.join([b"data: 1", b"", b": note", b"data: 2", b"", b""])
    assert lines(stream) == ([b"data: 1", b": note", b"data: 2"], b"")


def test_a_comment_is_a_line_and_an_empty_line_is_none() -> None:
    assert lines(b"\n\n\r\n:\n\n") == ([b":"], b"")


def test_what_has_no_end_is_no_line() -> None:
    assert lines(b"data: 1\ndata: ") == ([b"data: 1"], b"data: ")


@pytest.mark.parametrize(("size", "passes"), [(_LIMIT - 1, True), (_LIMIT, True), (_LIMIT + 1, False)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_bound_of_a_line_does_not_count_its_end(size: int, passes: bool, end: bytes) -> None:
    assert lines(b"x" * size + end) == (([b"x" * size], b"") if passes else ([], "too long"))


def test_a_line_that_does_not_end_is_too_long_before_its_end_has_come() -> None:
    assert lines(b"x" * (_LIMIT + 1)) == ([], "too long")
    assert lines(b"x" * _LIMIT) == ([], b"x" * _LIMIT)


@given(st.lists(st.sampled_from([b"a", b"data: x", b"\r", b"\n", b"\r\n", b":", "é".encode(), b"x" * 9])), st.data())
def test_any_splitting_of_the_bytes_gives_the_same_lines(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert lines(*reads) == lines(*(bytes([each]) for each in stream)) == lines(stream)
    assert all(line and b"\r" not in line and b"\n" not in line for line in lines(stream)[0])


@pytest.mark.parametrize(
    ("line", "done"),
    [
        (b"data: [DONE]", True),
        (b"data:[DONE]", True),
        (b"data: [DONE] ", True),
        (b'data: {"content":"[DONE]"}', False),
        (b": [DONE]", False),
        (b"data: [DONE]x", False),
        (b"[DONE]", False),
    ],
)
def test_only_the_line_itself_says_that_a_stream_is_done(line: bytes, done: bool) -> None:
    assert is_done(line) is done


@pytest.mark.parametrize(
    "events",
    [
        ("data: 1", ": ping", "data:2", "data"),
        ("event: x\nid: 1\ndata: 1", "data: 2"),
        (": ping", "event: x\n: ping\ndata: 1", ": ping"),
        ("database: 1\ndata: 1",),
    ],
)
def test_an_event_ends_with_its_data_and_a_comment_between_events_is_its_own(events: tuple[str, ...]) -> None:
    ends = EventEnds()
    told = [line + ends.after(line) for line in "\n".join(events).encode().split(b"\n")]
    assert b"".join(told) == "".join(f"{event}\n\n" for event in events).encode()
