"""Composes what is behind runners' lines: the bus between the gateway's processes, and where runners dial in.

Owns which of them exist in a process, and who may hold a line. What they do is `bus`'s and `runner_hub`'s.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection

from fastapi import FastAPI

from pointsman.bus.interface import Bus, BusError, BusUnavailable
from pointsman.bus.memory import MemoryBus
from pointsman.core.control_errors import Unauthenticated
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.secret import Secret
from pointsman.gateway.cannot_start import CannotStart
from pointsman.gateway.rest.runner_socket import Authenticate, add_runner_socket
from pointsman.gateway.runner_hub import RunnerHub
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.gateway.runners import Runners

_ASK_SECONDS = 1.0
"""For other processes to say which of all the runners that are asked after are connected to them."""


@contextlib.asynccontextmanager
async def gateway_bus(nats_url: Secret | None, say: Callable[[str], None], *, may_be_away: bool) -> AsyncIterator[Bus]:
    """The bus of a gateway of one process, or with a URL of several. Raises CannotStart."""
    bus: Bus
    if nats_url is None:
        bus = MemoryBus(say)
    else:
        from pointsman.bus.nats import open_nats_bus  # most gateways need none

        try:
            bus = await open_nats_bus(nats_url, say, may_be_away=may_be_away)
        except BusUnavailable as error:
            raise CannotStart(f"nats_url: {error}; or start the gateway with --allow-degraded") from None
    try:
        yield bus
    finally:
        await bus.close()


def runner_hub(bus: Bus, runners: Runners, say: Callable[[str], None]) -> RunnerHub:
    """What holds this process's lines, if any; from now on the records know who is there, at whichever process."""
    hub = RunnerHub(bus, say, time.time, DEFAULT_RUNNER_LIMITS, runners.seen)
    lines = RunnerLines(hub)
    runners.look_at(lines, lines)
    return hub


def serve_runners(api: FastAPI, hub: RunnerHub, runners: Runners) -> None:
    """Let runners dial in to an application."""
    add_runner_socket(api, hub, _authenticate_by(runners))


def _authenticate_by(runners: Runners) -> Authenticate:
    async def authenticate(runner_id: str, token: str) -> RunnerIdentity | None:
        try:
            runner = await runners.admit(runner_id, token)
        except Unauthenticated:
            return None
        return RunnerIdentity(runner.account, runner.id)

    return authenticate


class RunnerLines:
    """Who is connected, to whichever process: `Presence` and `RunnersChanged`."""

    def __init__(self, hub: RunnerHub) -> None:
        self._hub = hub

    async def connected(self, account: str, runner_ids: Collection[str]) -> Collection[str]:
        """See Presence. Whoever is not heard of in time is not there, however many are asked after."""
        found = {each for each in runner_ids if self._hub.active_requests(account, each) is not None}
        elsewhere = [each for each in runner_ids if each not in found]

        async def ask(runner_id: str) -> None:
            with contextlib.suppress(BusError):
                await self._hub.ask_line(account, runner_id, _ASK_SECONDS)
                found.add(runner_id)

        async with asyncio.TaskGroup() as tasks:  # all at once: those of a process that is stopped hold up no other's
            for each in elsewhere:
                tasks.create_task(ask(each))
        return found

    async def token_ended(self, account: str, runner_id: str) -> None:
        """See RunnersChanged."""
        await self._hub.evict(account, runner_id)
