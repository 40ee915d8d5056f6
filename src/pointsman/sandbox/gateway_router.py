"""A router that follows a gateway: composes line, poller and data plane.

Imports grpc, so `app` imports this only where a gateway is used.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

import pointsman.rpc.channel  # noqa: F401  # before anything else loads grpc: it says how
from pointsman.core.candidate import Bundle
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.data_plane import open_router
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.router import Router
from pointsman.sandbox.bundle_poller import BundlePoller, Schedule, polling
from pointsman.sandbox.gateway_link import GatewayLink
from pointsman.sandbox.route_source import GatewayRoutes


@contextlib.asynccontextmanager
async def open_gateway_router(
    routes: GatewayRoutes, log: OperationLog | None = None, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Router]:
    """A router whose routes are the gateway's, from the first answer on, which is waited for, and follow it.

    A gateway that does not answer is asked again and again; until it does there are no routes. Raises
    GatewayFileError for certificates that cannot be read.
    """
    if log is None:
        log = OperationLog(lines=None, wall_clock=time.time)
    link = GatewayLink(routes, limits)
    schedule = Schedule(
        routes.interval_seconds,
        asyncio.get_running_loop().time,
        first=random.uniform(0.1, 1.0),  # noqa: S311  # spreads load, protects nothing
    )
    try:
        async with open_router(Bundle(), log, limits) as router:
            poller = BundlePoller(link.fetch, router.routes, log, schedule)
            async with polling(poller):
                yield router
    finally:
        await link.close()
