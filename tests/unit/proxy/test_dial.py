"""Dialling that is given up at any moment leaves no connection behind."""

import asyncio
import gc
import socket

import pytest
import uvloop

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.connection import UpstreamConnection
from pointsman.proxy.upstream.pool import Origin, OriginPool, Pool
from pointsman.proxy.upstream.resolve import Resolver


def alive() -> int:
    gc.collect()
    return sum(isinstance(each, UpstreamConnection) for each in gc.get_objects())


class GivenUp(OriginPool):
    """Its caller gives up at the worst moment: the connection has been made, and nobody has been told yet."""

    caller: asyncio.Task[UpstreamConnection]

    def add(self, connection: UpstreamConnection) -> None:
        super().add(connection)
        self.caller.cancel()


@pytest.mark.guarantee("M2")
def test_a_pool_without_the_stricter_rule_dials_nothing_that_is_confined() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sweep, resolver = Sweep(loop, 1.0, loop.time), Resolver()
        pool = Pool(DEFAULT_LIMITS, sweep, resolver)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            for tls in (False, True):
                origin = pool.origin(Origin("127.0.0.1", listener.getsockname()[1], tls=tls, is_confined=True))
                with pytest.raises(UpstreamUnavailable, match="is not dialled here"):
                    await origin.dial()
            with pytest.raises(BlockingIOError):
                listener.accept()
        pool.close()
        resolver.close()
        sweep.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_connection_whose_caller_leaves_as_it_is_made_is_forgotten() -> None:
    before = alive()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        sweep, resolver = Sweep(loop, 1.0, loop.time), Resolver()
        pool = Pool(DEFAULT_LIMITS, sweep, resolver)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            origin = GivenUp(pool, Origin("127.0.0.1", listener.getsockname()[1]))
            origin.caller = loop.create_task(origin.dial())
            with pytest.raises(asyncio.CancelledError):
                await origin.caller
            peer, _ = listener.accept()
            with peer:
                assert await loop.run_in_executor(None, peer.recv, 1) == b""
            assert alive() == before
        pool.close()
        resolver.close()
        sweep.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
