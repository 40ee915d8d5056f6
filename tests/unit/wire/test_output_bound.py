"""What a body says of its answer's length, whatever it holds besides."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.output_bound import UNBOUND, OutputBound, read_output_bound


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ({}, UNBOUND),
        ({"max_tokens": 7}, OutputBound(7)),
        ({"max_completion_tokens": 8, "stream": True}, OutputBound(8, is_stream=True)),
        ({"max_output_tokens": 9}, OutputBound(9)),
        ({"max_tokens": 5, "max_completion_tokens": 6}, OutputBound(6)),
        ({"max_tokens": 5, "n": 3}, OutputBound(5, 3)),
        ({"n": 2, "best_of": 4}, OutputBound(None, 4)),
        ({"max_tokens": 0, "n": 0}, OutputBound(0)),
        ({"max_tokens": 4096.0}, OutputBound(4096)),
        ({"max_tokens": 10**30}, OutputBound(1 << 40)),
        ({"max_tokens": -1, "n": True, "stream": 1}, UNBOUND),
        ({"max_tokens": "9", "n": None, "stream": "true"}, UNBOUND),
        ({"messages": [{"max_tokens": 3}]}, UNBOUND),
    ],
)
def test_the_largest_limit_that_is_one_counts(body: dict[str, Any], bound: OutputBound) -> None:
    assert read_output_bound(json.dumps(body).encode()) == bound


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"max_tokens": NaN}'])
def test_what_is_no_object_says_nothing(body: bytes) -> None:
    assert read_output_bound(body) == UNBOUND


@given(st.dictionaries(st.sampled_from(["max_tokens", "n", "stream", "x"]), st.integers() | st.floats() | st.text()))
def test_nothing_that_is_written_raises(body: dict[str, Any]) -> None:
    bound = read_output_bound(json.dumps(body).encode())
    assert bound.answers >= 1
    assert bound.tokens is None or 0 <= bound.tokens <= 1 << 40
