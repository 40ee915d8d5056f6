"""What an operator watches a gateway by, as one object: what the control listener's paths call, and its composition."""

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from pointsman.core.control_errors import InvalidRequest, NotFound
from pointsman.core.version import VERSION
from pointsman.data_plane import LocalEngines
from pointsman.events.operations_file import DEFAULT_KEEP_DAYS, DayPieces, operation_files, read_day
from pointsman.events.operations_record import OperationJournal
from pointsman.gateway.cannot_start import CannotStart
from pointsman.gateway.metrics import Gauges, Metrics
from pointsman.gateway.provider_health import (
    NO_LOCAL_MODELS,
    LocalModels,
    ProviderHealth,
    SeenRunners,
    Targets,
    no_runners,
)
from pointsman.gateway.runner_identity import RunnerLoad
from pointsman.gateway.stats import LiveRows, no_rows

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom to ask for what is not in the journal."""

    targets: Targets
    """For `/health/providers`."""
    store_up: Callable[[], Awaitable[bool]]
    open_connections: Callable[[], int]
    """Of clients, at the data listener."""
    live_rows: LiveRows = no_rows
    engines: LocalEngines | None = None
    """Of local models."""
    runners: SeenRunners = no_runners
    """For `/health/providers`."""
    runner_load: Callable[[], RunnerLoad] = RunnerLoad
    """Of this process."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Composition roots make it with `watching`."""

    journal: OperationJournal
    """What an attempt loop tells its requests to."""
    directory: Path
    """Of the operation log's files."""
    sources: Sources
    health: ProviderHealth
    metrics: Metrics
    events_lost: Callable[[], int]
    """Lines of the operation log, since the start."""
    metrics_are_open: bool = False
    """Whether `/metrics` is for anyone who reaches the listener; otherwise it takes the admin's token."""

    async def history(self, day: str | None) -> DayPieces:
        """The operation log of a day, `YYYY-MM-DD` in UTC, or of today. Raises InvalidRequest and NotFound."""
        wanted = datetime.fromtimestamp(self.journal.wall_clock(), UTC).date() if day is None else _parsed(day)
        self.journal.flush()
        try:
            return await asyncio.to_thread(read_day, self.directory, wanted)
        except OSError:
            raise NotFound(f"there is no log of {wanted.isoformat()}; days begin and end in UTC") from None

    async def scrape(self) -> bytes:
        """The answer to Prometheus."""
        self.journal.flush()
        sources = self.sources
        store_up = await sources.store_up()
        rows = await sources.live_rows() if store_up else ()
        engines = sources.engines.states() if sources.engines is not None else {}
        connections, load = sources.open_connections(), sources.runner_load()
        return self.metrics.exposition(Gauges(rows, store_up, self.events_lost(), connections, engines, load))


def _parsed(day: str) -> date:
    if _DATE.fullmatch(day):
        try:
            return date.fromisoformat(day)
        except ValueError:
            pass
    raise InvalidRequest("date is no day; write it as ?date=2026-12-01")


@contextlib.contextmanager
def watching(
    directory: Path,
    say: Callable[[str], None],
    sources: Sources,
    *,
    keep_days: int = DEFAULT_KEEP_DAYS,
    metrics_are_open: bool = False,
) -> Iterator[Watching]:
    """Until the end, when what is pending is written. Raises CannotStart when the directory cannot be written to."""
    with contextlib.ExitStack() as stack:
        try:
            lines = stack.enter_context(operation_files(directory, keep_days, say, time.time))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"operation log {directory}: {reason}; it must be a directory that the gateway may write to"
            raise CannotStart(text) from None
        metrics = Metrics(VERSION)
        journal = OperationJournal(lines, [metrics], wall_clock=time.time, clock=time.monotonic)
        stack.callback(journal.flush)
        engines = sources.engines
        local = NO_LOCAL_MODELS if engines is None else LocalModels(engines.find, engines.states)
        health = ProviderHealth(sources.targets, local, sources.runners, wall_clock=time.time, clock=time.monotonic)
        yield Watching(journal, directory, sources, health, metrics, lambda: lines.lost, metrics_are_open)
