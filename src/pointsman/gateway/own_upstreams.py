"""The data plane's path to upstreams, for the gateway's own questions: verification, health, final fallbacks."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pointsman.core.limits import Limits
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.pool import Pool
from pointsman.proxy.upstream.resolve import Resolver


@contextmanager
def own_upstreams(limits: Limits) -> Iterator[HttpBackend]:
    """With connections of its own, which end with it."""
    loop = asyncio.get_running_loop()
    sweep = Sweep(loop, limits.sweep_seconds, loop.time)
    resolver = Resolver()
    pool = Pool(limits, sweep, resolver)
    try:
        yield HttpBackend(pool, limits, sweep)
    finally:
        pool.close()
        resolver.close()
        sweep.close()
