"""Events of a stream, one by one."""

import pytest

from pointsman.wire.stream_events import EventCutter, EventData, Unreadable

STREAM = b": hi\n\ndata: a\r\ndata:b\r\n\r\n\r\nevent: x\rdata: c\r\r\n\ndata: \xc3\xa9\n\r\nid\n\ndata: rest"


def events_of(pieces: list[bytes]) -> list[bytes]:
    cutter = EventCutter()
    events = [event for piece in pieces for event in cutter.receive(piece)]
    return [*events, cutter.rest()]


def test_which_reads_brought_the_bytes_makes_no_difference() -> None:
    whole = events_of([STREAM])
    assert b"".join(whole) == STREAM
    assert whole[:2] == [b": hi\n\n", b"data: a\r\ndata:b\r\n\r\n"]
    assert whole[-1] == b"data: rest"
    for first in range(len(STREAM) + 1):
        assert events_of([STREAM[:first], STREAM[first:]]) == whole
    assert events_of([STREAM[at : at + 1] for at in range(len(STREAM))]) == whole


def test_what_has_not_ended_is_counted() -> None:
    cutter = EventCutter()
    cutter.receive(b"data: a\n\ndata: b\n")
    assert len(cutter) == 8


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (b"data: {}\n\n", b"{}"),
        (b": comment\r\nevent: x\r\ndata: {\r\ndata:}\r\n\r\n", b"{\n}"),
        (b"\xef\xbb\xbfdata: x\n\n", b"x"),
        (b"data\n\n", b""),
        (b"retry: 5\nid: 7\n\n", b""),
    ],
)
def test_the_data_of_an_event_and_where_it_stands(event: bytes, text: bytes) -> None:
    data = EventData(event)
    assert data.text == text
    for at, byte in enumerate(text):
        if byte != ord("\n"):
            assert event[data.place(at)] == byte


@pytest.mark.parametrize("line", [b'{"a":1}', b"DATA: x", b" data: x", b"data : x"])
def test_a_line_that_no_event_stream_has_is_none(line: bytes) -> None:
    with pytest.raises(Unreadable):
        EventData(line + b"\n\n")
