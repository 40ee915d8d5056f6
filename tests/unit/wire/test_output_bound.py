"""What a body says of its answer's length, whatever it holds besides."""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.wire.json_model import read_model
from pointsman.wire.output_bound import UNBOUND, OutputBound, output_bound_of, read_output_bound


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
        ({"max_tokens": 1, "n": 0}, OutputBound(1)),
        ({"max_tokens": 0}, UNBOUND),
        ({"max_tokens": 0.9, "n": 0.9}, UNBOUND),
        ({"max_tokens": 4096.0}, OutputBound(4096)),
        ({"max_tokens": 10**30}, OutputBound(1 << 40)),
        ({"max_tokens": -1, "n": True, "stream": 1}, UNBOUND),
        ({"max_tokens": None, "n": None, "stream": "true"}, UNBOUND),
        ({"max_tokens": "9", "n": "2"}, OutputBound(9, 2)),
        ({"max_tokens": " 1_0 "}, OutputBound(10)),
        ({"max_tokens": "9" * 33, "n": "x", "best_of": [3]}, UNBOUND),
        ({"max_tokens": "1e9"}, OutputBound(10**9)),
        ({"max_tokens": 1e308, "n": 1e308}, OutputBound(1 << 40, 1 << 40)),
        ({"max_tokens": 1, "Max_Tokens": 7, "N": 2, "n_predict": 5}, OutputBound(7, 2)),
        ({"max_tokens": 1, "max_to\u212aens": 7}, OutputBound(7)),
        ({"prompt": "ab", "max_tokens": 5}, OutputBound(5)),
        ({"prompt": ["a", "b", "c"], "max_tokens": 5, "n": 2}, OutputBound(5, 6)),
        ({"prompt": [1, 2, 3], "max_tokens": 5}, OutputBound(5)),
        ({"prompt": [[1, 2], [3]], "max_tokens": 5}, OutputBound(5, 2)),
        ({"prompt": [], "max_tokens": 5}, OutputBound(5)),
        ({"messages": [{"max_tokens": 3}]}, UNBOUND),
    ],
)
def test_the_largest_limit_that_is_one_counts(body: dict[str, Any], bound: OutputBound) -> None:
    assert read_output_bound(json.dumps(body).encode()) == bound


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens":100,"max_tokens":1}',
        b'{"max_tokens":1,"max_tokens":100}',
        b'{"max_tokens":1,"m\\u0061x_tokens":100}',
        b'{"max_tokens":100,"max_tokens":null}',
        b'{"max_tokens":100,"x":[1e999]}',
    ],
)
def test_of_a_limit_that_is_named_twice_the_larger_counts(body: bytes) -> None:
    assert read_output_bound(body) == OutputBound(100)


@pytest.mark.parametrize(("members", "bound"), [(9_999, OutputBound(5)), (10_000, UNBOUND)])
def test_a_body_of_more_members_than_are_sent_says_nothing(members: int, bound: OutputBound) -> None:
    body = b'{"max_tokens":5' + b',"x":0' * members + b"}"
    assert read_output_bound(body) == bound


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"max_tokens": NaN}'])
def test_what_is_no_object_says_nothing(body: bytes) -> None:
    assert read_output_bound(body) == UNBOUND


@given(st.dictionaries(st.sampled_from(["max_tokens", "n", "stream", "x"]), st.integers() | st.floats() | st.text()))
def test_nothing_that_is_written_raises(body: dict[str, Any]) -> None:
    bound = read_output_bound(json.dumps(body).encode())
    assert bound.answers >= 1
    assert bound.tokens is None or 0 <= bound.tokens <= 1 << 40


_TEXT = '", [1], {"a": "b"}, \\ and é'
LONG_PROMPTS: dict[str, tuple[list[Any], int]] = {
    "a thousand texts": ([_TEXT] * 1000, 1000),
    "few long texts": ([_TEXT * 500] * 3, 3),
    "one text with an escape at its end": (["," * 2000 + "\\", "b"], 2),
    "tokens": ([1] * 5000, 1),
    "lists of tokens": ([[1, 2, 3]] * 700, 700),
    "one list of tokens": ([[7] * 5000], 1),
    "999 elements of all kinds": ([1, "a", [2], None, {}] * 199 + [1, 2, 3, 4], 199 * 4),
}


@pytest.mark.parametrize(("prompt", "answers"), LONG_PROMPTS.values(), ids=LONG_PROMPTS)
def test_a_long_prompt_asks_for_as_many_answers_as_it_has_texts_or_lists(prompt: list[Any], answers: int) -> None:
    for separators in ((",", ":"), (" , ", " : ")):
        body = json.dumps({"prompt": prompt}, separators=separators).encode()
        assert read_output_bound(body).answers == answers


@pytest.mark.parametrize("prompt", [[_TEXT] * 1001, ["a", [1], None] * 500, [["a"]] * 2000, [None] * 2000])
def test_of_more_than_are_counted_no_answer_is_left_out(prompt: list[Any]) -> None:
    assert read_output_bound(json.dumps({"prompt": prompt}).encode()).answers >= len(prompt) - 500


@pytest.mark.alone
@pytest.mark.parametrize("element", ["1,", '"",', "[1],", '"a\\\\b",', "null,"])
def test_the_largest_prompt_is_read_in_a_few_times_what_it_takes_to_read_its_model(element: str) -> None:
    body = b'{"model":"m","prompt":[%b1]}' % (element.encode() * ((10 << 20) // len(element)))

    def seconds(read: Callable[[bytes], object]) -> float:
        began = time.process_time()
        read(body)
        return time.process_time() - began

    least = [min(seconds(read) for _ in range(3)) for read in (read_output_bound, read_model)]
    assert least[0] < 10 * least[1], least


_MEMBERS = st.sampled_from(["max_tokens", "MAX_Tokens", "max_output_tokens", "n", "best_of", "stream", "prompt", "x"])
_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(-2, 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([True, False, None, "5", "1e3", "a", [], ["a", "b"], [[1, 2], [3]], [1, 2], {}]),
)


@given(st.dictionaries(_MEMBERS, _VALUES))
def test_of_an_object_that_was_decoded_the_bound_is_the_same(request: dict[str, Any]) -> None:
    body = json.dumps(request).encode()
    assert output_bound_of(msgspec.json.decode(body)) == read_output_bound(body)
