"""Processes that write to a store until they are killed, and say what has been committed.

Every write is a provider and a route of the same number, so that half of one shows.
"""

import asyncio
import multiprocessing
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from pointsman.gateway.audit_layer import AuditLayer
from pointsman.store.interface import Store
from pointsman.store.settings import StoreSettings
from pointsman.store.sql import open_store
from tests.conformance.records import provider, route

_fresh = multiprocessing.get_context("forkserver")
# Imported once, in the process that all are forked from: a second of work less for each.
_fresh.set_forkserver_preload([__name__])


class WriterProcess:
    """A process that writes."""

    def __init__(self, settings: StoreSettings, *, audited: bool = False) -> None:
        self._said, theirs = _fresh.Pipe(duplex=False)
        # A daemon: when a test fails, it does not outlive the run.
        self._process: Any = _fresh.Process(target=_run, args=(settings, theirs, audited), daemon=True)
        self._process.start()
        theirs.close()

    def next(self) -> tuple[int, int]:
        """The generation and the route's version of its next write, once that is committed."""
        said: tuple[int, int] = self._said.recv()
        return said

    def wait(self, seconds: float) -> None:
        """Let it work for so long."""
        self._process.join(seconds)
        assert self._process.is_alive()

    def kill(self) -> list[tuple[int, int]]:
        """What it had said besides."""
        self._process.kill()
        self._process.join()
        rest = []
        with self._said:
            try:
                while True:
                    rest.append(self._said.recv())
            except EOFError:
                return rest


def _run(settings: StoreSettings, says: Connection, audited: bool) -> None:
    asyncio.run(_write(settings, says, audited=audited))


async def _write(settings: StoreSettings, says: Connection, *, audited: bool) -> None:
    opened = await open_store(settings)
    store: Store = AuditLayer(opened, time.time) if audited else opened
    while True:
        async with store.write() as writer:
            generation = await writer.generation()
            await writer.insert_provider(provider(f"p{generation}"))
            put = await writer.put_route(replace(route(), provider_name=f"p{generation}"))
        says.send((generation, put.version))
