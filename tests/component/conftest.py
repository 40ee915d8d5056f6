"""Fixtures of the data plane's tests."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.limits import DEFAULT_LIMITS, Limits
from tests.support.answering_upstream import AnsweringUpstream
from tests.support.door import Door, candidate
from tests.support.policed_door import PolicedDoor
from tests.support.recorder import Recorder
from tests.support.sandboxes import Sandbox, sandbox
from tests.support.upstream import Upstream
from tests.support.watched import SOON_LEVEL, WatchedRouter

QUICK = replace(
    DEFAULT_LIMITS,
    sweep_seconds=0.02,
    connect_head_seconds=0.3,
    tls_handshake_seconds=0.3,
    head_seconds=0.3,
    body_progress_seconds=0.3,
    keep_alive_seconds=0.5,
    connect_seconds=0.5,
    response_header_seconds=0.5,
    chunk_idle_seconds=0.3,
    client_stall_seconds=0.5,
    buffered_seconds=0.5,
)
"""Deadlines that a test can wait for."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def policed(tmp_path: Path, upstream: Upstream) -> Iterator[PolicedDoor]:
    policed = PolicedDoor(tmp_path, upstream)
    policed.open()
    yield policed
    policed.close()


@pytest.fixture
def door(upstream: Upstream) -> Iterator[Door]:
    with Door(candidate(upstream.url)) as door:
        yield door
        assert "internal error" not in door.logged()
    assert not door.leftover


@pytest.fixture
def quick_limits() -> Limits:
    return QUICK


@pytest.fixture
def quick_door(upstream: Upstream) -> Iterator[Door]:
    with Door(candidate(upstream.url), limits=QUICK) as door:
        yield door
        assert "internal error" not in door.logged()
    assert not door.leftover


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def strict_door(recorder: Recorder) -> Iterator[Door]:
    """One door for a whole table; `assert_refused` keeps its rows apart."""
    with Door(candidate(recorder.url)) as door:
        yield door
        assert "internal error" not in door.logged()
    assert not door.leftover


@pytest.fixture(scope="module")
def answering() -> Iterator[AnsweringUpstream]:
    """Answers by itself, in a thread."""
    with AnsweringUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def router(answering: AnsweringUpstream) -> Iterator[WatchedRouter]:
    """The router in a process of its own, which is watched."""
    with WatchedRouter({"main": {"url": answering.url}}, SOON_LEVEL) as router:
        router.settle()
        yield router


@pytest.fixture(params=["netns", "bwrap"])
def inside(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Each isolation, and the person who uses it."""
    with sandbox(request.param) as made:
        yield made
