"""What a key of the data listener entitles to."""

from dataclasses import replace

from pointsman.core.data_key import INFERENCE, DataKey

KEY = DataKey("default", "laptop", b"d" * 32, created_at=1.0)


def test_a_key_may_infer_on_every_route_and_nothing_else_unless_it_says_so() -> None:
    assert KEY.permits(INFERENCE)
    assert not KEY.permits("models:create")
    assert KEY.may_use("any")


def test_a_key_with_routes_may_use_these_alone() -> None:
    key = replace(KEY, routes=("fast",))
    assert key.may_use("fast")
    assert not key.may_use("Fast")
    assert not key.may_use("fas")


def test_a_key_is_valid_until_the_moment_it_expires_and_never_after_it_was_revoked() -> None:
    key = replace(KEY, expires_at=100.0)
    assert key.is_valid(99.999)
    assert not key.is_valid(100.0)
    assert KEY.is_valid(1e12)
    assert not replace(KEY, revoked_at=5.0).is_valid(4.0)
