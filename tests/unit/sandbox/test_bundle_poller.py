"""The poller's one task: when it asks, that nothing ends it, and that leaving it ends it."""

import asyncio
import io
from collections.abc import Awaitable, Callable

import pytest

from pointsman.core.candidate import Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.received_bundle import ReceivedBundle
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.route_table import RouteTable
from pointsman.sandbox.bundle_poller import BundlePoller, Schedule, polling
from pointsman.sandbox.route_refresh import FetchFailed
from pointsman.testing import FakeClock

BUNDLE = make_bundle(
    (Candidate("inference.local", parse_endpoint("http://127.0.0.1:1"), "m", ("openai_responses",)),), "r1"
)


class Surroundings:
    """Time that passes only while the poller waits, and what it did at which second."""

    def __init__(self, fetch: Callable[[int], float | Exception | None], rounds: int, first: float = 1.0) -> None:
        self.clock = FakeClock(0.0)
        self.asked: list[float] = []
        self.text = io.StringIO()
        self.routes = RouteTable(Bundle())
        self.done = asyncio.Event()
        self._outcome, self._rounds = fetch, rounds
        schedule = Schedule(5.0, self.clock, self._wait, first)
        log = OperationLog(lines=self.text, wall_clock=self.clock)
        self.poller = BundlePoller(self._fetch, self.routes, log, schedule)

    async def _fetch(self, known: str) -> ReceivedBundle | None:
        self.asked.append(self.clock())
        outcome = self._outcome(len(self.asked))
        if isinstance(outcome, Exception):
            raise outcome
        self.clock.advance(outcome or 0.0)
        return None if known == BUNDLE.revision else ReceivedBundle(BUNDLE)

    async def _wait(self, seconds: float) -> None:
        assert seconds > 0
        if len(self.asked) > self._rounds:
            self.done.set()
            await asyncio.Event().wait()
        self.clock.advance(seconds)

    async def run(self) -> None:
        async with polling(self.poller):
            await self.done.wait()


def run(fetch: Callable[[int], float | Exception | None], rounds: int, first: float = 1.0) -> Surroundings:
    async def main() -> Surroundings:
        surroundings = Surroundings(fetch, rounds, first)
        await surroundings.run()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return surroundings

    return asyncio.run(main())


def test_it_asks_at_once_and_then_at_every_interval() -> None:
    done = run(lambda _: None, 4)
    assert done.asked == [0, 5, 10, 15, 20]
    assert done.routes.bundle == BUNDLE


def test_the_second_attempt_may_come_earlier_so_that_sandboxes_do_not_ask_together() -> None:
    assert run(lambda _: None, 3, first=0.25).asked == [0, 1.25, 6.25, 11.25]


def test_the_time_of_a_fetch_does_not_add_up_and_ticks_that_were_missed_fall_out() -> None:
    assert run(lambda number: 1.5 if number > 1 else 0.0, 3).asked == [0, 5, 10, 15]
    assert run(lambda number: 12.0 if number == 2 else 0.0, 3).asked == [0, 5, 20, 25]


@pytest.mark.parametrize("error", [FetchFailed("gateway_timeout", "late"), RuntimeError("sk-canary-1"), KeyError(1)])
def test_no_failure_ends_it_nor_takes_routes_away(error: Exception) -> None:
    done = run(lambda number: error if 1 < number < 5 else None, 5)
    assert len(done.asked) == 6
    assert done.routes.bundle == BUNDLE
    told = [line.split()[1] for line in done.text.getvalue().splitlines()]
    assert told == ["routes_loaded", "inference_enabled", "fetch_failed", "fetch_recovered"]
    assert "canary" not in done.text.getvalue()


def test_the_first_attempt_is_over_when_it_is_entered_however_it_ended() -> None:
    async def main() -> None:
        for outcome in (None, FetchFailed("gateway_timeout", "late")):
            surroundings = Surroundings(lambda _, outcome=outcome: outcome, 0)  # type: ignore[misc]
            async with polling(surroundings.poller):
                assert len(surroundings.asked) == 1
                assert surroundings.text.getvalue() != ""

    asyncio.run(main())


def test_leaving_ends_a_fetch_that_is_under_way() -> None:
    async def main() -> None:
        ended: list[str] = []
        entered = asyncio.Event()

        async def fetch(known: str) -> ReceivedBundle | None:
            if known:
                entered.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cancelled")
            return ReceivedBundle(BUNDLE)

        wait: Callable[[float], Awaitable[None]] = lambda seconds: asyncio.sleep(0)  # noqa: E731
        log = OperationLog(lines=None, wall_clock=FakeClock())
        poller = BundlePoller(fetch, RouteTable(Bundle()), log, Schedule(5.0, FakeClock(), wait))
        async with polling(poller):
            await entered.wait()
        assert ended == ["cancelled"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
