"""Keeps a route table at what a gateway says: one task, which asks, carries a decision out, and waits."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from pointsman.core.fault_place import fault_place
from pointsman.core.received_bundle import ReceivedBundle
from pointsman.events.operation_log import OperationLog
from pointsman.events.record import RoutesState
from pointsman.proxy.background import running
from pointsman.proxy.route_table import RouteTable
from pointsman.sandbox.route_refresh import Decision, FetchFailed, RouteRefresh, next_tick

Fetch = Callable[[str], Awaitable[ReceivedBundle | None]]
"""Gets a bundle, or None for the revision that is known. Raises FetchFailed, in bounded time."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When to ask."""

    interval_seconds: float
    clock: Callable[[], float]
    """Seconds."""
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    first: float = 1.0
    """Which part of the interval lies between the first attempt and the second: sandboxes that were started together
    are not to ask together for ever."""


class BundlePoller:
    """Asks for bundles and puts them in force."""

    def __init__(self, fetch: Fetch, routes: RouteTable, log: OperationLog, schedule: Schedule) -> None:
        self._fetch = fetch
        self._routes = routes
        self._log = log
        self._schedule = schedule
        self._refresh = RouteRefresh()

    async def poll(self) -> None:
        """Ask once. Raises nothing: whatever goes wrong is told, and what is in force stays."""
        try:
            decision = self._refresh.answered(await self._fetch(self._refresh.revision))
        except FetchFailed as failure:
            decision = self._refresh.failed(failure)
        except Exception as error:
            # A bug of ours must not leave the sandbox with today's routes for good.
            decision = self._refresh.failed(FetchFailed("internal_error", fault_place(error)))
        self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        if decision.bundle is not None:
            self._routes.swap(decision.bundle)
        for news in decision.news:
            state = RoutesState(news.kind, self._log.now, self._routes.bundle, "gateway", socket.gethostname())
            state.reason, state.detail, state.route = news.reason, news.detail, news.route
            self._log.append(state)
        if decision.news:
            self._log.flush()

    async def run(self) -> None:
        """Ask at every tick, until cancelled. What took longer than the interval makes ticks fall out."""
        schedule, interval = self._schedule, self._schedule.interval_seconds
        tick = 0
        start = schedule.clock() - interval * (1.0 - schedule.first)
        while True:
            elapsed = schedule.clock() - start
            tick = next_tick(tick, elapsed, interval)
            await schedule.wait(tick * interval - elapsed)
            await self.poll()


@contextlib.asynccontextmanager
async def polling(poller: BundlePoller) -> AsyncIterator[None]:
    """Asks once before it is entered, whatever comes of it, and from then on until it is left."""
    await poller.poll()
    async with running(poller.run(), "bundle poller"):
        yield
