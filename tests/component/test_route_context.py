"""What a route takes out of conversations: set, changed and taken away over gRPC, and found by the listener."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.context_options import ContextOptions
from pointsman.gateway.following import Followed
from pointsman.gateway.model_routes import ModelRoutes
from tests.component.test_control_chains import create, get, refusal, update
from tests.support.control_plane import RunningControlPlane, control_plane

WRITTEN = "drop-duplicates,drop-unused-tools,most-tokens=60000"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide("one", config={"OPENAI_BASE_URL": "mock://one", "MODEL": "own"})
        running.provide("two", config={"OPENAI_BASE_URL": "mock://two"})
        yield running


def test_a_context_is_stored_changed_left_alone_and_taken_away(running: RunningControlPlane) -> None:
    assert create(running, context=WRITTEN).route.context == WRITTEN
    assert update(running, request_timeout_secs=9).route.context == WRITTEN
    assert update(running, context="drop-duplicates").route.context == "drop-duplicates"
    assert get(running).context == "drop-duplicates"
    assert update(running, context="none").route.context == ""
    assert create(running, context=WRITTEN).route.context == WRITTEN
    assert create(running).route.context == ""


def test_a_context_that_cannot_be_is_refused(running: RunningControlPlane) -> None:
    assert "none of its options" in refusal(running, "INVALID_ARGUMENT", context="shorten")
    direct = {"candidates": [], "provider_name": "one", "model": "m", "context": WRITTEN}
    told = refusal(running, "INVALID_ARGUMENT", "inference.local", **direct)
    assert "--via-gateway --context" in told
    create(running)
    refusal(running, "INVALID_ARGUMENT", "inference.local", candidates=[], target="fast", context=WRITTEN)


def test_the_listener_knows_the_context_of_each_route_that_has_one(running: RunningControlPlane) -> None:
    create(running)
    create(running, "trimmed", context="most-tokens=5000")
    routes = ModelRoutes(lambda _: None)
    running.call(Followed(running.control.store, print).keep(routes, "model routes"))
    assert routes.contexts == {("default", "trimmed"): ContextOptions(most_tokens=5000)}
