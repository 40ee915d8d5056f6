"""A bundle's revision: equal for equal routes, different for any difference."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.secret import Secret
from pointsman.routing.resolve import ResolvedRoute
from pointsman.routing.revision import revision
from tests.support.canary import KEY, Finder

SECRET = b"s" * 32
ROUTE = ResolvedRoute(
    name="inference.local",
    base_url="https://host/v1",
    protocols=("openai_chat_completions", "model_discovery"),
    api_key=Secret(KEY),
    model="m",
    provider_type="openai",
    timeout_seconds=0,
)
CHANGES: dict[str, Any] = {
    "name": "sandbox-system",
    "base_url": "https://host/v2",
    "protocols": ("model_discovery", "openai_chat_completions"),
    "api_key": Secret("rotated"),
    "model": "m2",
    "provider_type": "nvidia",
    "timeout_seconds": 60,
}
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
routes = st.lists(
    st.builds(
        ResolvedRoute,
        name=text,
        base_url=text,
        protocols=st.lists(text, max_size=3).map(tuple),
        api_key=text.map(Secret),
        model=text,
        provider_type=text,
        timeout_seconds=st.integers(0, 3),
    ),
    max_size=3,
)


def test_bundle_revision_is_stable_for_same_route() -> None:
    again = replace(ROUTE, api_key=Secret(KEY))
    assert revision(SECRET, [ROUTE]) == revision(SECRET, (again,)) == revision(SECRET, [ROUTE])
    assert re.fullmatch("[0-9a-f]{16}", revision(SECRET, [ROUTE]))


def test_a_revision_is_the_same_in_every_process() -> None:
    assert revision(b"key", [replace(ROUTE, api_key=Secret("k"))]) == "fe03165cc0deed79"


@pytest.mark.parametrize("name", [field.name for field in fields(ResolvedRoute)])
def test_a_change_of_any_field_changes_the_revision(name: str) -> None:
    assert revision(SECRET, [replace(ROUTE, **{name: CHANGES[name]})]) != revision(SECRET, [ROUTE])


def test_a_revision_depends_on_the_secret_the_order_and_the_number_of_routes() -> None:
    other = replace(ROUTE, name="sandbox-system")
    seen = [
        revision(SECRET, []),
        revision(SECRET, [ROUTE]),
        revision(b"t" * 32, [ROUTE]),
        revision(SECRET, [ROUTE, other]),
        revision(SECRET, [other, ROUTE]),
        revision(SECRET, [ROUTE, ROUTE]),
    ]
    assert len(set(seen)) == len(seen)


def test_a_revision_says_nothing_of_the_key() -> None:
    assert not Finder({"key": KEY}).find(revision(SECRET, [ROUTE]).encode())


@given(routes, routes)
def test_revisions_are_equal_exactly_when_the_routes_are(one: list[ResolvedRoute], other: list[ResolvedRoute]) -> None:
    assert (revision(SECRET, one) == revision(SECRET, other)) == (one == other)


@given(st.sampled_from([("name", "base_url"), ("base_url", "model"), ("model", "provider_type")]), text, text, text)
def test_text_that_moves_from_a_field_to_the_next_changes_the_revision(
    names: tuple[str, str], left: str, middle: str, right: str
) -> None:
    def make(first: str, second: str) -> ResolvedRoute:
        changes: dict[str, Any] = dict(zip(names, (first, second), strict=True))
        return replace(ROUTE, **changes)

    one, other = make(left + middle, right), make(left, middle + right)
    assert (revision(SECRET, [one]) == revision(SECRET, [other])) == (not middle)


@given(st.lists(text, min_size=1, max_size=3), text)
def test_a_protocol_list_is_no_joined_text(names: list[str], joint: str) -> None:
    one, other = replace(ROUTE, protocols=tuple(names)), replace(ROUTE, protocols=(joint.join(names),))
    assert (revision(SECRET, [one]) == revision(SECRET, [other])) == (one == other)
