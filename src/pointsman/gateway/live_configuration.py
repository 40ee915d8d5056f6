"""The configuration in force: checked against the world at the start, and read again while the gateway runs.

What of a new file takes effect is `config.reload`'s to decide, what a wrong one says `config.settings`'s. Here it is
applied: the records' layer and the default route change in one step, between requests.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from pointsman.config.gateway_records import FileRecords
from pointsman.config.reload import NOT_READ, Loaded, Stamp, changes, reload, watch
from pointsman.config.settings import Settings
from pointsman.core.control_errors import ControlError
from pointsman.gateway.cannot_start import CannotStart
from pointsman.gateway.configuration_audit import ConfigurationAudit
from pointsman.gateway.fallback_reach import REACH_LIMITS, unreachable_fallbacks
from pointsman.gateway.file_layer import NO_RECORDS, FileLayer
from pointsman.gateway.provider_health import HealthLimits

NOTHING_TO_READ = "SIGHUP: there is no file to read again; name one with --config and restart the gateway"
_DEGRADED = "requests that need it fail until it is started"
_FATAL = "start it, or start the gateway with --allow-degraded"


class LiveConfiguration:
    """`settings` are in force. `layer` holds the records of `loaded`, and those of every good file after it."""

    def __init__(
        self, loaded: Loaded, layer: FileLayer, say: Callable[[str], None], limits: HealthLimits = REACH_LIMITS
    ) -> None:
        self.settings: Settings = loaded.settings
        self._source = loaded.source
        self._read: Stamp = loaded.stamp
        """What the file was when it was read last."""
        self._layer = layer
        self._say = say
        self._limits = limits
        self._turn = asyncio.Lock()
        self._audit = ConfigurationAudit(layer, str(loaded.source.file or "no file"), time.time)

    async def check(self) -> None:
        """Look, at the start, at what the file alone cannot tell.

        Raises CannotStart with every name that is stored too, and every final fallback that does not answer; the latter
        are warnings for a gateway that may be degraded. Raises ControlError when the store does not answer.
        """
        problems = await self._problems(self.settings.records, NO_RECORDS)
        if problems:
            raise CannotStart("\n".join(problems))
        await self._audit.started(self.settings)

    async def _problems(self, records: FileRecords, known: FileRecords) -> tuple[str, ...]:
        """What is wrong with records that are good in themselves. Fallbacks that are in `known` are not asked again."""
        place = self._source.file
        conflicts = tuple(f"{place}: {each}" for each in await self._layer.conflicts(records))
        unreachable = await unreachable_fallbacks(records, known, self._limits)
        if not self._source.allow_degraded:
            return (*conflicts, *(f"{place}: {each}; {_FATAL}" for each in unreachable))
        for each in unreachable:
            self._say(f"warning: {place}: {each}; {_DEGRADED}")
        return conflicts

    async def follow(self, hung_up: asyncio.Event, applied: Callable[[], Awaitable[None]]) -> None:
        """Read again at each SIGHUP, which sets `hung_up`, and when the file has changed; until cancelled.

        `applied` is called when something has changed, and the log says so when that has returned.
        """

        async def changed() -> None:
            if self._source.stamp() != self._read:  # else a signal was faster
                await self._read_again(applied)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._heed(hung_up, applied), name="SIGHUP")
            if self._source.file is not None:
                watching = watch(self._source.stamp, asyncio.sleep, changed, self._read)
                group.create_task(watching, name="configuration file")

    async def _heed(self, hung_up: asyncio.Event, applied: Callable[[], Awaitable[None]]) -> None:
        while True:
            await hung_up.wait()
            hung_up.clear()
            if self._source.file is None:
                self._say(NOTHING_TO_READ)
            else:
                await self._read_again(applied)

    async def _read_again(self, applied: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            try:
                await self._take(applied)
            except ControlError as error:
                self._say(error.text)
                self._say(f"{NOT_READ}; send SIGHUP when the database answers")
            except Exception as error:  # one that was not foreseen must not end the watching
                self._say(f"internal error: {type(error).__name__} while the configuration was read again; {NOT_READ}")

    async def _take(self, applied: Callable[[], Awaitable[None]]) -> None:
        self._read = self._source.stamp()
        old = self.settings
        # A file of 256 KiB takes a good part of a second, and secrets may lie on a slow disk.
        done = await asyncio.to_thread(reload, old, self._source.load)
        for line in done.lines:
            self._say(line)
        if done.refused:
            return
        if done.changed:
            problems = await self._problems(done.settings.records, old.records)
            if problems:
                for problem in (*problems, NOT_READ):
                    self._say(problem)
                return
            # First, so that nothing is in force that the record does not tell of.
            await self._audit.reloaded(old, done.settings)
            # Nothing is waited for between these two: the default route is of the same file as the routes.
            self._layer.replace(done.settings.records)
        self.settings = done.settings
        if done.changed:
            with contextlib.suppress(ControlError):  # of a store that has just gone; it is looked at again and again
                await applied()
        told = changes(old, done.settings) or "nothing that takes effect at once has changed"
        self._say(f"configuration {self._source.file} read again: {told}")
