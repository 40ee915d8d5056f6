"""The field that tells a gateway that a request has come back around."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.routing.hops import MOST_GATEWAYS, comes_back, mark_of, onward

OURS, THEIRS = mark_of(b"jklmnopqrest"), mark_of(b"abcdefgh")


def marks(count: int) -> bytes:
    return b", ".join(mark_of(b"%08d" % number) for number in range(count))


@pytest.mark.parametrize("value", [b"", b"1", b"7", THEIRS, b"1, " + THEIRS, OURS[:-1], OURS + b"0", OURS.upper()])
def test_what_has_not_been_here_does_not_come_back(value: bytes) -> None:
    assert not comes_back(value, OURS)


@pytest.mark.parametrize("value", [OURS, THEIRS + b"," + OURS, b"1 ,\t" + OURS + b" , x"])
def test_what_has_been_here_comes_back_wherever_its_mark_stands(value: bytes) -> None:
    assert comes_back(value, OURS)


def test_a_request_passes_so_many_gateways_and_no_more() -> None:
    assert not comes_back(marks(MOST_GATEWAYS - 1), OURS)
    assert comes_back(marks(MOST_GATEWAYS), OURS)


@pytest.mark.parametrize(
    ("value", "sent"),
    [(b"", OURS), (b"1", OURS), (THEIRS, THEIRS + b", " + OURS), (b"secret, " + THEIRS + b",,", THEIRS + b", " + OURS)],
)
def test_a_mark_is_added_and_nothing_but_marks_is_passed_on(value: bytes, sent: bytes) -> None:
    assert onward(value, OURS) == sent


@given(st.binary(max_size=200))
def test_whatever_a_client_sends_what_goes_on_is_known_to_come_back(value: bytes) -> None:
    assert comes_back(onward(value, OURS), OURS)
    assert set(onward(value, OURS)) <= set(b"0123456789abcdef, ")
