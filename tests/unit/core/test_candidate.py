"""Bundles by route."""

import dataclasses

import pytest

from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM, Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint


def candidate(route: str, model: str = "m") -> Candidate:
    return Candidate(route, parse_endpoint("http://127.0.0.1:1/v1"), model, ("openai_chat_completions",))


def test_the_reserved_names_are_spelt_as_the_design_spells_them() -> None:
    assert (INFERENCE_LOCAL, SANDBOX_SYSTEM) == ("inference.local", "sandbox-system")


def test_routes_are_segregated_by_name_and_keep_their_order() -> None:
    user = candidate(INFERENCE_LOCAL, "a"), candidate("fast", "b"), candidate("sandbox-systems", "c")
    system = candidate(SANDBOX_SYSTEM, "d"), candidate(SANDBOX_SYSTEM, "e")
    bundle = make_bundle((user[0], system[0], user[1], system[1], user[2]), revision="r1")
    assert bundle == Bundle(routes=user, system_routes=system, revision="r1")


def test_an_empty_bundle_is_valid() -> None:
    assert make_bundle(()) == Bundle((), (), "")


@pytest.mark.parametrize("name", ["routes", "revision"])
def test_a_bundle_does_not_change(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(make_bundle(()), name, ())


def test_a_candidate_has_no_key_no_timeout_and_the_systems_certificates_unless_told() -> None:
    plain = candidate("x")
    assert (plain.api_key, plain.timeout_seconds, plain.ca_bundle, plain.provider_type) == (None, 0.0, "", "")
