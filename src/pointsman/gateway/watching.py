"""What an operator watches a gateway by, as one object: what the control listener's paths call."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.events.operations_record import OperationJournal
from pointsman.gateway.metrics import Gauges, Metrics
from pointsman.gateway.provider_health import ProviderHealth
from pointsman.gateway.stats import LiveRow

LiveRows = Callable[[], Awaitable[Sequence[LiveRow]]]
"""Every provider of every account, with its counters as of now."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Composition roots make it."""

    journal: OperationJournal
    directory: Path
    """Of the operation log's files."""
    live_rows: LiveRows
    health: ProviderHealth
    metrics: Metrics
    store_up: Callable[[], Awaitable[bool]]
    events_lost: Callable[[], int]
    open_connections: Callable[[], int]
    metrics_are_open: bool = False
    """Whether `/metrics` is for anyone who reaches the listener; otherwise it takes the admin's token."""

    async def scrape(self) -> bytes:
        """The answer to Prometheus."""
        self.journal.flush()
        store_up = await self.store_up()
        rows = await self.live_rows() if store_up else ()
        return self.metrics.exposition(Gauges(rows, store_up, self.events_lost(), self.open_connections()))
