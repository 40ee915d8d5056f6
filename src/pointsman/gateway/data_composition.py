"""Composes what is behind the data listener: models by name, quotas, local engines, and the journal of requests.

Owns which of them exist and the order in which they end. What each does is its own module's; sockets, the control
plane and its listeners are `app`'s.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from pointsman.config.settings import Settings
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.reach import DirectReach
from pointsman.data_plane import local_engines
from pointsman.events.operation_log import OperationLog
from pointsman.gateway.cannot_start import CannotStart
from pointsman.gateway.data_listener import DataListener, Served
from pointsman.gateway.data_watching import WatchedPaths
from pointsman.gateway.explained_stages import ExplainedStages
from pointsman.gateway.following import Followed, following
from pointsman.gateway.model_routes import ModelRoutes
from pointsman.gateway.provider_health import targets_of_records
from pointsman.gateway.runner_hub import RunnerHub
from pointsman.gateway.runners import Runners
from pointsman.gateway.stages.composition import open_stages
from pointsman.gateway.stats import rows_of_records
from pointsman.gateway.watching import Sources, Watching, watching
from pointsman.proxy.background import running
from pointsman.proxy.model_reception import Models
from pointsman.routing.hops import mark_of
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.interface import Store
from pointsman.store.quota_ledger import SqlQuotaLedger
from pointsman.store.quota_postgresql import open_postgresql_ledger
from pointsman.store.quota_sqlite import open_sqlite_ledger

_MARK = b"hop mark"
_QUOTA_FILE = "quota.db"


@dataclass(frozen=True, slots=True)
class DataSide:
    """What the rest of the gateway needs of it."""

    listener: DataListener
    watched: Watching
    """What the control listener shows of it."""
    refresh: Callable[[], Awaitable[None]]
    """Take over changed records at once, not at the next look. Raises ControlError."""
    budgets: SqlBudgetLedger
    explained: ExplainedStages


@contextlib.asynccontextmanager
async def data_side(
    in_force: Callable[[], Settings],
    store: Store,
    is_healthy: Callable[[], Awaitable[bool]],
    log: OperationLog,
    hub: RunnerHub,
    runners: Runners,
) -> AsyncIterator[DataSide]:
    """Ready to serve a socket; on leaving, requests end first. Raises CannotStart and ControlError.

    What takes effect at once is asked of `in_force` again and again, all else at the start.
    """
    settings = in_force()
    async with contextlib.AsyncExitStack() as stack:
        records = Followed(store, log.say, lambda: in_force().default_route)
        routes = ModelRoutes(log.say)
        await records.keep(routes, "model routes")
        await stack.enter_async_context(following(records))
        is_open, mark = not _asks_for_keys(settings), mark_of(store.derive(_MARK))
        models = Models(lambda: routes.access, time.time, is_open=is_open, mark=mark)
        engines = await stack.enter_async_context(local_engines())
        ledger = await _open_ledger(settings, stack, log.say)
        around = await open_stages(settings, ledger, records, lambda: routes.contexts, log.say, stack)
        # Before the listener, so that requests that end with it are still told.
        sources = Sources(
            targets_of_records(store),
            is_healthy,
            lambda: listener.open_connections,
            live_rows=rows_of_records(store, ledger, time.time),
            engines=engines,
            runners=runners.list,
            runner_load=lambda: hub.load,
        )
        kept = settings.operation_log
        are_open = settings.auth.metrics == "none"
        watched = stack.enter_context(
            watching(kept.dir, log.say, sources, keep_days=kept.keep_days, metrics_are_open=are_open)
        )
        paths = WatchedPaths(watched, lambda: in_force().records.stats_on_data)
        reach = DirectReach(settings.direct_allowed_cidrs)
        served = Served(models, ledger, engines, around.stages, watched.journal, paths, runner_bus=hub.bus, reach=reach)
        listener = DataListener(log, is_healthy, served)
        stack.push_async_callback(listener.close)
        routes.on_halted = listener.halt
        yield DataSide(listener, watched, records.refresh, around.budgets, around.explained)


def _asks_for_keys(settings: Settings) -> bool:
    return settings.auth.data == "keys" or (settings.auth.data == "auto" and not settings.listen.data.is_loopback)


async def _open_ledger(
    settings: Settings, stack: contextlib.AsyncExitStack, say: Callable[[str], None]
) -> SqlQuotaLedger:
    """Counters beside the store: a file of their own, or its PostgreSQL. Looked at again and again for others'."""
    url = settings.database_url.reveal()
    file = settings.data_dir / _QUOTA_FILE if url.startswith("sqlite:") else None
    try:
        ledger = await (open_sqlite_ledger(file, time.time()) if file else open_postgresql_ledger(url, time.time()))
    except LedgerUnavailable as error:
        raise CannotStart(f"{error} ({file})" if file else str(error)) from None
    stack.push_async_callback(ledger.close)
    await stack.enter_async_context(running(ledger.watch(time.time, say), "quota ledger"))
    return ledger
