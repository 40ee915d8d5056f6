"""Texts of route files, and what becomes of them."""

from pathlib import PurePath

import pytest

from pointsman.config.problems import Problem, RouteFileError
from pointsman.config.routes_file import parse_route_file
from pointsman.core.candidate import Candidate

CANARY = "sk-canary-7f3a19"
DIRECTORY = PurePath("/etc/pointsman")
ENVIRON = {"OPENAI_API_KEY": CANARY, "EMPTY_KEY": "", "BLANK_KEY": "  \n", "PADDED_KEY": f" {CANARY}\n"}
OPENAI = ("openai_chat_completions", "openai_completions", "openai_responses", "model_discovery")
BASE = {"endpoint": "http://localhost:1234/v1", "model": "m", "protocols": "[openai_chat_completions]", "api_key": "k1"}


def route(**changes: str | None) -> str:
    """A file of one good route on lines 2 and up, with some of its lines changed, added or, by None, left out."""
    lines = [f"{key}: {value}" for key, value in {**BASE, **changes}.items() if value is not None]
    return "routes:\n  - " + "\n    ".join(lines) + "\n"


def parse(text: str, environ: dict[str, str] = ENVIRON) -> tuple[Candidate, ...]:
    return parse_route_file(text, environ, DIRECTORY)


def one(**changes: str | None) -> Candidate:
    (candidate,) = parse(route(**changes))
    return candidate


def problems_of(text: str, environ: dict[str, str] = ENVIRON) -> tuple[Problem, ...]:
    with pytest.raises(RouteFileError) as caught:
        parse(text, environ)
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert str(caught.value).count("\n") == len(caught.value.problems) - 1
    return caught.value.problems


def outcome(text: str) -> tuple[tuple[Candidate, ...], str]:
    """The candidates, or everything that an error can be printed as."""
    try:
        candidates = parse(text)
    except RouteFileError as error:
        return (), f"{error} {error!r} {error.problems!r} {error.args!r}"
    return candidates, repr(candidates)


def problem(**changes: str | None) -> Problem:
    found = problems_of(route(**changes))
    assert len(found) == 1, found
    return found[0]


def text_of(found: Problem) -> str:
    return found.describe("f")
