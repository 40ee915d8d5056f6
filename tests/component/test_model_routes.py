"""The table of models follows the store: routes of every account, chains, keys, and what cannot be served."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.config.gateway_records import FileRecords
from pointsman.core.attempts import Chain
from pointsman.core.candidate import Candidate
from pointsman.core.model_table import ModelAccess
from pointsman.core.provider import Provider
from pointsman.core.route import CHAIN, Route, RouteCandidate
from pointsman.gateway import following
from pointsman.gateway.file_layer import FileLayer
from pointsman.gateway.model_routes import ModelRoutes
from pointsman.proxy.background import running as beside
from tests.support.control_plane import RunningControlPlane, control_plane


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide("first")
        running.provide("second")
        yield running


class Followed:
    """A table that looks when it is asked to."""

    def __init__(self, running: RunningControlPlane) -> None:
        self.running = running
        self.lines: list[str] = []
        self.routes = ModelRoutes(self.lines.append)
        self.records = following.Followed(running.control.store, self.lines.append)
        running.call(self.records.keep(self.routes, "model routes"))

    def look(self) -> ModelAccess:
        self.running.call(self.records.refresh())
        return self.routes.access

    def put(self, route: Route) -> None:
        async def write() -> None:
            async with self.running.control.store.write() as writer:
                await writer.put_route(route)

        self.running.call(write())


@pytest.fixture
def followed(running: RunningControlPlane) -> Followed:
    return Followed(running)


def chain(*names: str, fallback: str = "") -> Route:
    candidates = tuple(RouteCandidate(name, "m") for name in names)
    return Route("default", "pool", "", "", kind=CHAIN, candidates=candidates, strategy="in_order", fallback=fallback)


def test_named_routes_are_models_and_the_sandboxes_two_are_not(followed: Followed) -> None:
    for name in ("fast", "inference.local", "sandbox-system"):
        followed.running.point(name, provider="first")
    targets = followed.look().accounts["default"].targets
    assert list(targets) == ["fast"]
    assert isinstance(targets["fast"], Candidate)


def test_a_chain_has_its_members_in_order(followed: Followed) -> None:
    followed.put(chain("second", "first"))
    target = followed.look().accounts["default"].targets["pool"]
    assert isinstance(target, Chain)
    assert [member.provider for member in target.members] == ["second", "first"]
    assert {member.candidate.route for member in target.members} == {"pool"}


def test_a_broken_member_is_left_out_and_told_and_the_others_serve(followed: Followed) -> None:
    followed.put(chain("first", "second"))
    followed.running.call(followed.running.control.providers.delete("default", "second", force=True))
    target = followed.look().accounts["default"].targets["pool"]
    assert isinstance(target, Chain)
    assert [member.provider for member in target.members] == ["first"]
    assert [line for line in followed.lines if "second" in line]


def test_what_has_not_changed_keeps_its_identity(followed: Followed) -> None:
    followed.running.point("fast", provider="first")
    followed.put(chain("first", "second"))
    before = followed.look().accounts["default"].targets
    followed.running.point("other", provider="first")
    after = followed.look().accounts["default"].targets
    assert after["fast"] is before["fast"]
    assert after["pool"] is before["pool"]
    assert "other" in after


def test_accounts_have_tables_of_their_own(followed: Followed) -> None:
    followed.running.call(followed.running.control.accounts.create("other"))
    followed.running.provide("first", account="other")
    followed.running.point("fast", provider="first")
    accounts = followed.look().accounts
    assert list(accounts["default"].targets) == ["fast"]
    assert not accounts["other"].targets


def test_of_many_routes_eight_are_compiled_before_requests_get_a_turn(running: RunningControlPlane) -> None:
    provider = Provider("id", "default", "modelless", "mock", {}, {}, 0.0, 0.0)
    only = replace(chain(), candidates=(RouteCandidate("modelless"),))
    broken = tuple(replace(only, name=f"r{number}") for number in range(100))
    turn, told_in = 0, Counter[int]()
    layer = FileLayer(running.control.store, FileRecords((provider,), broken))
    routes = ModelRoutes(lambda _: told_in.update([turn]))  # each that is not served is told

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def compile_them() -> None:
        async with beside(count(), "turns"):
            await following.Followed(layer, print).keep(routes, "model routes")

    running.call(compile_them())
    assert sum(told_in.values()) >= 100
    assert max(told_in.values()) <= 2 * 8  # a route and its provider
