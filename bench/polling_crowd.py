"""Many sandboxes' lines to a gateway in one thread: each with a connection and a pace of its own, and no data plane."""

import asyncio
import random
import threading
import time
from pathlib import Path

from pointsman.core.gateway_address import read_gateway_address
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.sandbox.gateway_link import GatewayLink
from pointsman.sandbox.route_refresh import DEFAULT_INTERVAL_SECONDS, FetchFailed
from pointsman.sandbox.route_source import gateway_routes


class PollingCrowd:
    """Every 5 s each asks, as a sandbox does."""

    def __init__(self, url: str, token_file: Path, count: int) -> None:
        self._routes = gateway_routes(read_gateway_address(url), str(token_file))
        self._answered = [0.0] * count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._stop = asyncio.Event()

    def __enter__(self) -> "PollingCrowd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    def wait_for_all(self, since: float, seconds: float) -> float:
        """When the last of them had a bundle that it asked for since then. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while min(self._answered) < since:
            if time.monotonic() > deadline:
                late = sum(at < since for at in self._answered)
                raise TimeoutError(f"{late} of {len(self._answered)} had no bundle after {seconds:g} s")
            time.sleep(0.01)
        return max(self._answered)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(number)) for number in range(len(self._answered))]
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    async def _follow(self, number: int) -> None:
        link, revision = GatewayLink(self._routes, DEFAULT_LIMITS), ""
        await asyncio.sleep(random.uniform(0.0, 1.0))
        try:
            while True:
                began = time.monotonic()
                try:
                    bundle = await link.fetch(revision)
                except FetchFailed:
                    pass
                else:
                    revision = bundle.bundle.revision if bundle is not None else revision
                    self._answered[number] = time.monotonic()
                await asyncio.sleep(max(0.0, began + DEFAULT_INTERVAL_SECONDS - time.monotonic()))
        finally:
            await link.close()
