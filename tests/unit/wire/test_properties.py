"""The fuzzing properties on generated inputs, on every seed, and on everything that once broke one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.properties import PROPERTIES
from tests.fuzz.seeds import SEEDS, WORDS


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Seeds, words and noise, glued together, with a byte or two gone wrong."""
    parts = st.sampled_from(SEEDS[name] + WORDS[name]) | st.binary(max_size=4)
    glued = st.lists(parts, min_size=1, max_size=10).map(b"".join)
    return st.builds(_damage, glued, st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=2)), max_size=2))


def _damage(data: bytes, places: list[tuple[int, bytes]]) -> bytes:
    for place, piece in places:
        data = data[:place] + piece + data[place + 1 :]
    return data


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name in SEEDS for seed in SEEDS[name]])
def test_every_property_holds_for_its_seeds(name: str, seed: bytes) -> None:
    PROPERTIES[name](seed)


@pytest.mark.guarantee("F2", "F8", "F12")
@given(inputs("request"))
def test_any_request_is_read_the_same_however_it_arrives_and_as_llhttp_reads_it(data: bytes) -> None:
    PROPERTIES["request"](data)


@pytest.mark.guarantee("F4", "F5", "F6", "F7")
@given(inputs("chunked"))
def test_any_chunked_body_is_read_the_same_however_it_arrives_and_as_llhttp_reads_it(data: bytes) -> None:
    PROPERTIES["chunked"](data)


@given(inputs("connect"))
def test_any_connect_is_read_the_same_however_it_arrives_and_as_llhttp_reads_it(data: bytes) -> None:
    PROPERTIES["connect"](data)


@pytest.mark.guarantee("J1", "J2", "J3", "J5")
@given(inputs("json"))
def test_any_body_is_pinned_with_nothing_else_changed_or_refused(data: bytes) -> None:
    PROPERTIES["json"](data)


@pytest.mark.guarantee("J1", "J2", "J5")
@given(inputs("json-tokens") | st.binary(max_size=30))
def test_any_text_of_json_tokens_is_pinned_with_nothing_else_changed_or_refused(data: bytes) -> None:
    PROPERTIES["json-tokens"](data)


@given(inputs("events"))
def test_any_event_stream_passes_in_whole_events(data: bytes) -> None:
    PROPERTIES["events"](data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        # A malformed request line beyond its limit was 400 in one piece and 414 byte by byte.
        ("request", b"GET  /" + b"a" * 60 + b" HTTP/1.1\r\nHost: inference.local\r\n\r\n"),
        # A control byte in a head beyond its limit was 431 in one piece and 400 byte by byte.
        ("request", b"GET / HTTP/1.1\r\nX: \x01\r\n" + b"Y: 1\r\n" * 40 + b"\r\n"),
        ("request", b"GET / HTTP/1.1\r\n" + b"Y: 1\r\n" * 40 + b"X: \x01"),
        ("connect", b"CONNECT inference.local:443 HTTP/1.1\r\nHost: \x01\r\nX: " + b"a" * 99 + b"\r\n\r\n"),
        # A control byte in the length was hidden by another complaint about the head.
        ("request", b"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 2\0\r\n\r\n{}"),
        # Trailers beyond 8 KiB passed when they came in one piece.
        ("chunked", b"0\r\nX: " + b"a" * 9000 + b"\r\n\r\n"),
        # llhttp refuses white space around extensions.
        ("chunked", b"1 ; x\r\na\r\n0\r\n\r\n"),
        ("chunked", b"1; x\r\na\r\n0\r\n\r\n"),
        # White space between byte order marks hid a brace.
        ("json", b"\xef\xbb\xbf \xef\xbb\xbf{}"),
    ],
)
def test_every_property_holds_for_what_once_broke_it(name: str, data: bytes) -> None:
    PROPERTIES[name](data)


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_has_seeds_and_words(name: str) -> None:
    assert SEEDS[name]
    assert WORDS[name]
