"""The data plane with the engine behind it, which do not know each other: what sandboxes and gateways both compose."""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.engine.fleet import EngineFleet
from pointsman.engine.supervisor import EngineUnavailable
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.backends.http import EngineLine
from pointsman.proxy.router import Router

FindEngine = Callable[[Candidate], Awaitable[EngineLine]]


@contextlib.asynccontextmanager
async def local_engines() -> AsyncIterator[FindEngine]:
    """What finds the engine of a `gguf` candidate; an engine starts at first use, and all end with this."""
    fleet = EngineFleet(clock=time.monotonic)

    async def find_engine(candidate: Candidate) -> EngineLine:
        engine = fleet.engine(Path(candidate.endpoint.path))
        try:
            address = await engine.address()
        except EngineUnavailable as error:
            raise UpstreamUnavailable(str(error)) from None
        return EngineLine(address.socket_path, address.key, engine.cpu_seconds)

    try:
        yield find_engine
    finally:
        await fleet.close()


@contextlib.asynccontextmanager
async def open_router(
    bundle: Bundle, log: OperationLog | None = None, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Router]:
    """A router with a local engine behind its `gguf` routes. The engine starts at first use."""
    if log is None:
        log = OperationLog(lines=None, wall_clock=time.time)
    async with local_engines() as find_engine:
        router = Router(bundle, log, limits=limits, find_engine=find_engine)
        try:
            yield router
        finally:
            await router.close()
