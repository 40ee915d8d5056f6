"""What `/stats/live` tells: every provider with its quota, from its record, and what is used of it, from the ledger.

How a row is computed is `proxy.live_quotas`'; the paths are those of `rest.watching` and `data_watching`.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from pointsman.core.provider import Provider
from pointsman.core.quota import UNLIMITED, Quota, QuotaKey
from pointsman.proxy.ledger import QuotaLedger
from pointsman.proxy.live_quotas import LiveQuota, live_quotas
from pointsman.routing.members import quota_of
from pointsman.routing.resolve import Unresolvable
from pointsman.store.interface import Store

MOST_ROWS = 1000
"""Of one account, by name: as many providers as a file may define."""
LiveRows = Callable[[], Awaitable[Sequence[LiveQuota]]]
"""Every provider of every account, with its counters as of now. Raises ControlError when the store is away."""


async def no_rows() -> Sequence[LiveQuota]:
    """For a gateway that counts nothing."""
    return ()


def rows_of_records(store: Store, ledger: QuotaLedger, clock: Callable[[], float]) -> LiveRows:
    """Rows by account and name. Records are read again when the store has changed; `clock`: seconds since the epoch."""
    known: dict[QuotaKey, Quota] = {}
    seen = -1

    async def rows() -> Sequence[LiveQuota]:
        nonlocal known, seen
        generation = await store.generation()
        if generation != seen:
            known, seen = await _quotas(store), generation
        return live_quotas(ledger, known, clock())

    return rows


async def _quotas(store: Store) -> dict[QuotaKey, Quota]:
    async with store.read() as reader:
        return {
            QuotaKey(account.name, provider.name): _quota(provider)
            for account in await reader.accounts()
            for provider in await reader.providers(account.name, MOST_ROWS, 0)
        }


def _quota(provider: Provider) -> Quota:
    try:
        return quota_of(provider)
    except Unresolvable:  # no chain uses such a record, so that nothing is counted; `/health/providers` tells it
        return UNLIMITED


def live_answer(rows: Sequence[LiveQuota], account: str) -> dict[str, Any]:
    """Those of an account; the first six fields of a row are those that InferRouter's clients know."""
    return {"providers": [_told(row) for row in rows if row.key.account == account]}


def _told(row: LiveQuota) -> dict[str, Any]:
    return {
        "provider_name": row.key.provider,
        "daily_limit": row.quota.daily_requests,
        "daily_count": row.counters.daily,
        "rpm_limit": row.quota.requests_per_minute,
        "rpm_window_count": row.counters.minute,
        "is_exhausted": row.is_exhausted,
        "exhausted_until": _time(row.exhausted_until or None),
        "resets_at": _time(row.day.end),
        "runs_dry_at": _time(row.runs_dry_at),
    }


def _time(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a provider's Retry-After may lie beyond any calendar
        return None
