"""Looking at providers: a cheap question each, kept for a while, no completion, no model loaded unasked."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.errors import UpstreamUnavailable
from pointsman.gateway.provider_health import (
    Found,
    HealthLimits,
    LocalModels,
    ProviderHealth,
    Target,
    targets_of_records,
)
from pointsman.testing import FakeClock
from tests.support.canary import KEY
from tests.support.control_plane import control_plane
from tests.support.probed_upstream import answer, probed_upstream
from tests.support.probing import resolved, run


def target(name: str, url: str) -> Target:
    return Target(name, resolved(url))


DEFAULT = HealthLimits()


class Looking:
    """A health of fixed targets on a clock that stands still, and what it was asked to load."""

    def __init__(self, *targets: Target, limits: HealthLimits = DEFAULT, can_load: bool = True) -> None:
        self.targets = list(targets)
        self.loaded: list[Candidate] = []
        self.asked: list[str] = []
        self.states: dict[str, str] = {}
        self.clock = FakeClock()
        self._can_load = can_load
        local = LocalModels(self._load, lambda: self.states)
        self.health = ProviderHealth(
            self._targets, local, wall_clock=lambda: 1_796_083_200.0, clock=self.clock, limits=limits
        )

    async def _targets(self, account: str) -> Sequence[Target]:
        self.asked.append(account)
        return self.targets

    async def _load(self, candidate: Candidate) -> None:
        if not self._can_load:
            raise UpstreamUnavailable("no such file")
        self.loaded.append(candidate)

    async def look(self, account: str = "default", *, load: bool = False) -> tuple[Found, ...]:
        return (await self.health.look(account, load=load)).found


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (200, "ok"),
        (299, "ok"),
        (302, "unknown_error"),
        (400, "unknown_error"),
        (401, "auth_error"),
        (402, "auth_error"),
        (403, "auth_error"),
        (404, "ok"),
        (405, "ok"),
        (429, "rate_limit"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_a_providers_answer_is_told_in_a_word(status: int, word: str) -> None:
    async def looked() -> None:
        async with probed_upstream(answer(status, b"{}", b"Connection: close\r\n")) as upstream:
            assert await Looking(target("groq", upstream.url)).look() == (Found("groq", word, status, 0),)
            [request] = upstream.requests
            assert request.line == b"GET /v1/models HTTP/1.1"
            assert request.value(b"authorization") == f"Bearer {KEY}".encode()
            assert request.body == b""

    run(looked())


def test_what_was_found_stays_for_half_a_minute_and_not_longer() -> None:
    async def looked() -> None:
        async with probed_upstream(*[answer(200, b"{}", b"Connection: close\r\n")] * 2) as upstream:
            looking = Looking(target("groq", upstream.url))
            await looking.look()
            looking.clock.advance(29.9)
            await asyncio.gather(*[looking.look() for _ in range(20)])
            assert len(upstream.requests) == 1
            looking.clock.advance(0.1)
            await asyncio.gather(*[looking.look() for _ in range(20)])
            assert len(upstream.requests) == 2

    run(looked())


def test_each_account_is_looked_at_by_itself() -> None:
    async def looked() -> None:
        looking = Looking(target("m", "mock://m"))
        for account in ("a", "b", "a", "b"):
            await looking.look(account)
        assert looking.asked == ["a", "b"]

    run(looked())


def test_one_that_is_silent_or_not_there_is_unreachable_and_holds_up_no_other() -> None:
    async def looked() -> None:
        async with probed_upstream(None) as silent, probed_upstream(answer(200, b"{}")) as good:
            limits = HealthLimits(seconds=0.3)
            looking = Looking(
                target("silent", silent.url),
                target("closed", "http://127.0.0.1:1/v1"),
                target("good", good.url),
                limits=limits,
            )
            silent_found, closed, fine = await looking.look()
            assert (silent_found, closed) == (Found("silent", "unreachable"), Found("closed", "unreachable"))
            assert fine.status == "ok"

    run(looked())


def gguf() -> Target:
    return Target("local", resolved("gguf:///models/small.gguf"))


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_no_more_are_asked_at_once_than_allowed(at_once: int) -> None:
    most = under_way = 0

    async def load(candidate: Candidate) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        for _ in range(50):  # whoever else may come in, comes in
            await asyncio.sleep(0)
        under_way -= 1

    async def targets(account: str) -> Sequence[Target]:
        return [gguf()] * 6

    async def looked() -> None:
        limits = HealthLimits(at_once=at_once)
        local = LocalModels(load, dict)
        health = ProviderHealth(targets, local, wall_clock=FakeClock(), clock=FakeClock(), limits=limits)
        assert len((await health.look("default", load=True)).found) == 6

    run(looked())
    assert most == at_once


def test_a_local_model_is_loaded_only_when_that_is_asked_for() -> None:
    async def looked() -> None:
        looking = Looking(gguf())
        assert await looking.look() == (Found("local", "not_loaded"),)
        assert looking.loaded == []
        assert await looking.look(load=True) == (Found("local", "ok", None, 0),)
        assert len(looking.loaded) == 1

    run(looked())


def test_a_local_model_that_cannot_be_loaded_is_unreachable() -> None:
    async def looked() -> None:
        assert await Looking(gguf(), can_load=False).look(load=True) == (Found("local", "unreachable"),)

    run(looked())


@pytest.mark.parametrize(
    ("state", "word"),
    [("idle", "not_loaded"), ("loading", "not_loaded"), ("ready", "ok"), ("failed", "not_loaded")],
)
def test_a_local_model_that_is_in_use_is_ok_without_being_asked_for(state: str, word: str) -> None:
    async def looked() -> None:
        looking = Looking(gguf())
        looking.states["/models/small.gguf"] = state
        [found] = await looking.look()
        assert found.status == word
        assert looking.loaded == []

    run(looked())


def test_a_look_that_loads_a_model_holds_up_none_that_does_not() -> None:
    loading, loaded = asyncio.Event(), asyncio.Event()

    async def load(candidate: Candidate) -> None:
        loading.set()
        await loaded.wait()

    async def targets(account: str) -> Sequence[Target]:
        return [gguf()]

    async def looked() -> None:
        health = ProviderHealth(targets, LocalModels(load, dict), wall_clock=FakeClock(), clock=FakeClock())
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            slow = group.create_task(health.look("default", load=True))
            await loading.wait()
            assert [each.status for each in (await health.look("default")).found] == ["not_loaded"]
            loaded.set()
        assert [each.status for each in slow.result().found] == ["ok"]

    run(looked())


def test_a_key_in_a_file_is_read_for_each_look_and_one_that_cannot_be_read_is_an_auth_error(tmp_path: Path) -> None:
    path = tmp_path / "groq_api_key"

    async def looked() -> None:
        async with probed_upstream(*[answer(200, b"{}", b"Connection: close\r\n")] * 2) as upstream:
            looking = Looking(replace(target("groq", upstream.url), key_file=str(path)))
            for content, status, sent in [
                ("first", "ok", b"Bearer first"),
                (None, "auth_error", None),
                ("two\nlines", "auth_error", None),
                ("second", "ok", b"Bearer second"),
            ]:
                path.unlink(missing_ok=True)
                if content is not None:
                    path.write_text(content + "\n")
                    path.chmod(0o600)
                before = len(upstream.requests)
                [found] = await looking.look()
                assert found.status == status
                asked = [each.value(b"authorization") for each in upstream.requests[before:]]
                assert asked == ([sent] if sent else [])
                looking.clock.advance(30)

    run(looked())


def test_a_look_that_is_broken_off_leaves_nothing_and_the_next_one_works() -> None:
    async def looked() -> None:
        async with probed_upstream(None, answer(200, b"{}")) as upstream:
            looking = Looking(target("groq", upstream.url))
            async with asyncio.TaskGroup() as group:
                first = group.create_task(looking.look())
                await upstream.asked.wait()
                first.cancel()
            await upstream.all_left()
            [found] = await looking.look()
            assert found.status == "ok"

    run(looked())


def test_targets_that_cannot_be_read_are_an_error_and_are_not_kept() -> None:
    calls = 0

    async def targets(account: str) -> Sequence[Target]:
        nonlocal calls
        calls += 1
        raise UpstreamUnavailable("no store")

    async def looked() -> None:
        health = ProviderHealth(targets, wall_clock=FakeClock(), clock=FakeClock())
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable):
                await health.look("default")
        assert calls == 2

    run(looked())


def test_stored_providers_are_looked_at_as_their_records_say(tmp_path: Path) -> None:
    with control_plane(tmp_path) as running:
        running.provide("mocked")
        running.provide("nowhere", config={"OPENAI_BASE_URL": "http://169.254.169.254/v1"})
        health = ProviderHealth(targets_of_records(running.control.store), wall_clock=FakeClock(), clock=FakeClock())
        found = {each.provider: each.status for each in running.call(health.look("default")).found}
        assert found == {"mocked": "ok", "nowhere": "unusable"}
