"""The data plane with the engine behind it, which do not know each other: what sandboxes and gateways both compose."""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.engine.fleet import EngineFleet
from pointsman.engine.supervisor import EngineUnavailable
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.backends.http import EngineLine
from pointsman.proxy.router import Router


class LocalEngines:
    """The engines of `gguf` candidates, by model file. One starts at first use."""

    def __init__(self, fleet: EngineFleet) -> None:
        self._fleet = fleet

    async def find(self, candidate: Candidate) -> EngineLine:
        """Where a candidate's engine answers, once it is ready. Raises UpstreamUnavailable."""
        engine = self._fleet.engine(Path(candidate.endpoint.path))
        try:
            address = await engine.address()
        except EngineUnavailable as error:
            raise UpstreamUnavailable(str(error)) from None
        return EngineLine(address.socket_path, address.key, engine.cpu_seconds, engine.until_dead)

    def states(self) -> dict[str, str]:
        """What each engine that was asked for is doing (`engine.supervisor.EngineState`), by the path of its model."""
        return {str(path): str(state) for path, state in self._fleet.states().items()}


@contextlib.asynccontextmanager
async def local_engines() -> AsyncIterator[LocalEngines]:
    """Engines that all end with this."""
    fleet = EngineFleet(clock=time.monotonic)
    try:
        yield LocalEngines(fleet)
    finally:
        await fleet.close()


@contextlib.asynccontextmanager
async def open_router(
    bundle: Bundle, log: OperationLog | None = None, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Router]:
    """A router with a local engine behind its `gguf` routes. The engine starts at first use."""
    if log is None:
        log = OperationLog(lines=None, wall_clock=time.time)
    async with local_engines() as engines:
        router = Router(bundle, log, limits=limits, find_engine=engines.find)
        try:
            yield router
        finally:
            await router.close()
