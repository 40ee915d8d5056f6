"""The data plane's path to upstreams, for the gateway's own questions: verification, health, final fallbacks."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pointsman.core.limits import Limits
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.pool import Pool
from pointsman.proxy.upstream.resolve import Resolver


@contextmanager
def own_upstreams(limits: Limits, reach: DirectReach = ONLY_PUBLIC) -> Iterator[HttpBackend]:
    """With connections of its own, which end with it. `reach`: where confined candidates may lead to."""
    loop = asyncio.get_running_loop()
    sweep = Sweep(loop, limits.sweep_seconds, loop.time)
    resolver, confined = Resolver(), Resolver(reach.refused)
    pool = Pool(limits, sweep, resolver, confined)
    try:
        yield HttpBackend(pool, limits, sweep)
    finally:
        pool.close()
        resolver.close()
        confined.close()
        sweep.close()
