"""The control API of a watched gateway: its journal, and the counters that it would have."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pointsman.events.operations_file import OperationLines, operation_files
from pointsman.gateway.metrics import Metrics
from pointsman.gateway.provider_health import ProviderHealth, Target
from pointsman.gateway.watching import Sources, Watching
from pointsman.proxy.live_quotas import LiveQuota
from pointsman.testing import FakeClock
from tests.support.chain_requests import MIDNIGHT, Journal
from tests.support.rest import RunningApi, rest_api

DAY = 86400.0


class Watched:
    """A watched gateway: its journal, and the counters that it would have."""

    def __init__(self, directory: Path, lines: OperationLines, *, metrics_are_open: bool) -> None:
        self.rows: list[LiveQuota] = []
        self.targets: list[Target] = []
        metrics = Metrics("1.2.3")
        self.journal = Journal(metrics, lines=lines, now=MIDNIGHT - DAY)
        self.watching = Watching(
            self.journal.journal,
            directory,
            Sources(self._targets, self._store_up, lambda: 3, self._rows),
            ProviderHealth(self._targets, wall_clock=time.time, clock=time.monotonic),
            metrics,
            lambda: lines.lost,
            metrics_are_open,
        )

    async def _rows(self) -> Sequence[LiveQuota]:
        return self.rows

    async def _store_up(self) -> bool:
        return True

    async def _targets(self, account: str) -> Sequence[Target]:
        return self.targets


@contextlib.contextmanager
def watched_api(tmp_path: Path, *, metrics_are_open: bool = False) -> Iterator[tuple[RunningApi, Watched]]:
    directory = tmp_path / "operations"
    with operation_files(directory, 30, print, FakeClock(MIDNIGHT - DAY)) as lines:
        watched = Watched(directory, lines, metrics_are_open=metrics_are_open)
        with rest_api(tmp_path, watching=watched.watching) as api:
            yield api, watched
