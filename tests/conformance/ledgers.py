"""Ledgers of every kind, opened for a test; a second one on the same counters, where there can be one."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from pointsman.core.quota import Quota, QuotaKey
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.store.quota_ledger import SqlQuotaLedger
from pointsman.store.quota_postgresql import open_postgresql_ledger
from pointsman.store.quota_sqlite import open_sqlite_ledger

KEY = QuotaKey("default", "groq")
NOON = 1_790_000_040.0
"""2026-09-21 14:14:00 UTC: the beginning of a minute, far from any midnight."""


@dataclass(frozen=True, slots=True)
class Counting:
    """Where counters are kept: a file or a database's URL. Can be sent to another process."""

    file: Path | None = None
    url: str = ""
    patience_seconds: float = 30.0
    """With a server: air for a busy machine."""

    @contextlib.asynccontextmanager
    async def opened(self, now: float = NOON) -> AsyncIterator[SqlQuotaLedger]:
        """A worker's ledger."""
        if self.file is not None:
            ledger = await open_sqlite_ledger(self.file, now)
        else:
            ledger = await open_postgresql_ledger(self.url, now, 30.0, self.patience_seconds)
        try:
            yield ledger
        finally:
            await ledger.close()


@contextlib.asynccontextmanager
async def any_ledger(counting: Counting | None) -> AsyncIterator[SqlQuotaLedger | MemoryLedger]:
    """In memory, when there is nothing to keep counters in."""
    if counting is None:
        yield MemoryLedger()
        return
    async with counting.opened() as ledger:
        yield ledger


async def admitted(ledger: SqlQuotaLedger | MemoryLedger, quota: Quota, now: float, tries: int) -> int:
    """How many of so many reservations were taken, one after the other."""
    return sum([await ledger.reserve(KEY, quota, now) is not None for _ in range(tries)])


def at(zone: str, text: str) -> float:
    """Seconds since the epoch of a local time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()
