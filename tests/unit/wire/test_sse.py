"""Holding back incomplete events."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.sse import EventTail, last_boundary

EVENTS = st.lists(
    st.sampled_from([b"data: a", b"data: bc", b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b": c\n\n", b"x" * 12]),
    max_size=30,
).map(b"".join)


def run(data: bytes, cuts: list[int], limit: int) -> tuple[list[bytes], EventTail]:
    tail = EventTail(limit)
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    return [tail.receive(data[a:b]) for a, b in itertools.pairwise(edges)], tail


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"data: a\n\n", 9),
        (b"data: a\n", 0),
        (b"data: a\n\ndata: b\n", 9),
        (b"data: a\r\n\r\ndata", 11),
        (b"data: a\r\rdata", 9),
        (b"a\n\r\nb", 4),
        (b"", 0),
        (b"\n\n", 2),
    ],
)
def test_the_last_boundary_is_behind_the_last_empty_line(data: bytes, end: int) -> None:
    assert last_boundary(data) == end


@pytest.mark.guarantee("R4")
@given(EVENTS, st.lists(st.integers(0, 200), max_size=30), st.sampled_from([5, 20, 10_000]))
def test_any_splitting_loses_and_reorders_nothing(data: bytes, cuts: list[int], limit: int) -> None:
    pieces, tail = run(data, cuts, limit)
    assert b"".join(pieces) + tail.finish() == data


@pytest.mark.guarantee("R8")
@given(EVENTS, st.lists(st.integers(0, 200), max_size=30))
def test_any_splitting_lets_through_whole_events_only(data: bytes, cuts: list[int]) -> None:
    pieces, tail = run(data, cuts, 10_000)
    passed = b"".join(pieces)
    assert not tail.inside_event
    assert passed == b"" or re.search(rb"(\r\n|\n|\r)(\r\n|\n|\r)$", passed)
    held = data[len(passed) :]
    assert not re.search(rb"(\r\n|\n|\r(?!\n))(\r\n|\n|\r(?!\n))[^\r\n]", held)


@pytest.mark.limit("event_tail_bytes")
@pytest.mark.parametrize("size", [64, 65])
def test_an_incomplete_event_is_held_up_to_the_limit_and_then_let_through(size: int) -> None:
    tail = EventTail(64)
    passed = tail.receive(b"data: 1\n\n" + b"x" * size)
    assert tail.inside_event is (size > 64)
    assert passed == b"data: 1\n\n" + (b"x" * size if size > 64 else b"")


def test_a_long_event_ends_where_its_empty_line_does_and_holding_goes_on_behind_it() -> None:
    tail = EventTail(4)
    pieces = [(piece, tail.receive(piece), tail.inside_event) for piece in (b"data: long", b"er\n", b"\nda", b"t\n\n")]
    assert pieces == [
        (b"data: long", b"data: long", True),
        (b"er\n", b"er\n", True),
        (b"\nda", b"\n", False),
        (b"t\n\n", b"dat\n\n", False),
    ]
