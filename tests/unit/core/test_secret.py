"""Values that must not be shown."""

import copy
import json
import pickle
import traceback

import pytest

from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.secret import Secret

CANARY = "sk-canary-9b2e41"
SECRET = Secret(CANARY)


def test_reveal_gives_the_value() -> None:
    assert SECRET.reveal() == CANARY


@pytest.mark.guarantee("K1")
@pytest.mark.parametrize(
    "printed",
    [
        repr(SECRET),
        str(SECRET),
        f"{SECRET}",
        f"{SECRET!r:>40}",
        f"{SECRET:>40}",
        "%s %r" % (SECRET, SECRET),  # noqa: UP031
        repr([SECRET, {"key": SECRET}]),
        str(ValueError(SECRET)),
        ascii(SECRET),
    ],
)
def test_no_way_of_printing_shows_the_value(printed: str) -> None:
    assert "canary" not in printed
    assert "***" in printed


def test_resolved_route_debug_redacts_api_key() -> None:
    candidate = Candidate(
        "inference.local", parse_endpoint("http://host/v1"), "m", ("openai_responses",), api_key=SECRET
    )
    assert "canary" not in repr(candidate) + str(candidate) + repr(make_bundle((candidate,)))
    assert "***" in repr(candidate)


@pytest.mark.guarantee("K1")
def test_a_traceback_shows_no_value() -> None:
    def fail(key: Secret) -> None:
        raise ValueError(f"cannot use {key}")

    with pytest.raises(ValueError) as caught:
        fail(SECRET)
    lines = traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    assert "canary" not in "".join(line for line in lines if "CANARY" not in line)


@pytest.mark.parametrize("serialise", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps])
def test_a_secret_is_not_serialised(serialise: object) -> None:
    assert callable(serialise)
    with pytest.raises(TypeError) as caught:
        serialise(SECRET)
    assert "canary" not in str(caught.value)


def test_it_has_no_attribute_dictionary_to_dump() -> None:
    assert not hasattr(SECRET, "__dict__")


def test_secrets_are_equal_by_value_and_never_to_their_text() -> None:
    assert Secret(CANARY) == SECRET
    assert hash(Secret(CANARY)) == hash(SECRET)
    assert Secret("other") != SECRET
    assert SECRET != CANARY
    assert len({SECRET, Secret(CANARY), Secret("other")}) == 2
    assert hash(SECRET) != hash(CANARY)


@pytest.mark.parametrize(("text", "expected"), [("x abcdef y", True), ("abcde", False), ("", False)])
def test_a_secret_tells_whether_a_text_gives_it_away(text: str, expected: bool) -> None:
    assert Secret("abcdef").appears_in(text) is expected


def test_a_short_secret_matches_nothing() -> None:
    assert not Secret("none!").appears_in("none!")
