"""A swap replaces the bundle in one step, and leaves alone what did not change."""

from dataclasses import replace

import pytest

from pointsman.core.candidate import Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.secret import Secret
from pointsman.proxy.route_table import RouteTable


def candidate(route: str = "inference.local") -> Candidate:
    return Candidate(
        route, parse_endpoint("http://127.0.0.1:1/v1"), "m", ("openai_responses",), "openai", Secret("k"), 5.0
    )


def test_a_candidate_that_did_not_change_stays_the_same_object() -> None:
    user, system = candidate(), candidate("sandbox-system")
    table = RouteTable(make_bundle((user, system), "r1"))
    table.swap(make_bundle((candidate("fast"), candidate(), candidate("sandbox-system")), "r2"))
    assert table.bundle.revision == "r2"
    assert table.bundle.routes[1] is user
    assert table.bundle.system_routes[0] is system


@pytest.mark.parametrize(
    "change",
    [
        {"api_key": Secret("other")},
        {"api_key": None},
        {"endpoint": parse_endpoint("http://127.0.0.1:2/v1")},
        {"model": "other"},
        {"timeout_seconds": 6.0},
        {"ca_bundle": "/certificates.pem"},
        {"provider_type": "nvidia"},
        {"protocols": ("openai_completions",)},
    ],
)
def test_a_candidate_of_which_anything_changed_is_the_new_one(change: dict[str, object]) -> None:
    old = candidate()
    new = replace(old, **change)  # type: ignore[arg-type]  # one field of any type
    table = RouteTable(make_bundle((old,), "r1"))
    table.swap(make_bundle((new,), "r2"))
    assert table.bundle.routes[0] is new


def test_a_bundle_that_a_request_holds_does_not_change() -> None:
    table = RouteTable(make_bundle((candidate(),), "r1"))
    held = table.bundle
    table.swap(Bundle())
    assert held == make_bundle((candidate(),), "r1")
    assert table.bundle == Bundle()
