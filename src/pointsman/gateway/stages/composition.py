"""Composes the stages around each request of the data listener, and what keeps them at what the store says.

Owns which stages there are and in which order what stands behind them ends. Their order around a request is
`proxy.stages`', what each does its own module's.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pointsman.config.settings import Settings
from pointsman.core.context_options import ContextOptions
from pointsman.gateway.explained_stages import ExplainedStages
from pointsman.gateway.following import Followed
from pointsman.gateway.stages.audit import AuditStage
from pointsman.gateway.stages.budgets import BudgetStages, teller
from pointsman.gateway.stages.budgets_in_force import BudgetsInForce
from pointsman.gateway.stages.context import ContextStage
from pointsman.gateway.stages.decisions import Decisions, noting
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.gateway.stages.prices_in_force import PricesInForce
from pointsman.gateway.stages.receipts import ReceiptStages, keeping_receipts
from pointsman.gateway.stages.request_policy import RequestPolicy
from pointsman.gateway.stages.response_policy import ResponsePolicy
from pointsman.gateway.stages.usage import UsageRows, keeping
from pointsman.gateway.stages.usage_tally import tallying
from pointsman.proxy.background import running
from pointsman.proxy.stages import Stages
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_ledger import SqlQuotaLedger


@dataclass(frozen=True, slots=True)
class StageSide:
    """The stages, and what the rest of the gateway needs of what is behind them."""

    stages: Stages
    budgets: SqlBudgetLedger
    policies: PoliciesInForce
    explained: ExplainedStages


async def open_stages(
    settings: Settings,
    quotas: SqlQuotaLedger,
    records: Followed,
    contexts: Callable[[], Mapping[tuple[str, str], ContextOptions]],
    say: Callable[[str], None],
    stack: contextlib.AsyncExitStack,
) -> StageSide:
    """To be opened before the listener, so that requests that end with it still get their rows.

    Raises ControlError.
    """
    store = records.store
    prices = PricesInForce()
    await records.keep(prices, "prices")
    usage = UsageRows(store, say, time.time, keep_days=settings.usage_keep_days, prices_of=prices.of_account)
    prices.before_change = usage.form
    usage.tally = stack.enter_context(tallying(settings.data_dir, say))
    await stack.enter_async_context(keeping(usage))
    receipts: ReceiptStages | None = None
    if settings.receipts:
        receipts = ReceiptStages(settings.receipts, store, say)
        await stack.enter_async_context(keeping_receipts(receipts))
    decisions = Decisions(store, say, time.time)
    await stack.enter_async_context(noting(decisions))
    policies = PoliciesInForce()
    await records.keep(policies, "policies")
    request_policy = RequestPolicy(policies)
    stack.callback(request_policy.close)
    budgets_in_force, ledger, budgets = await _budgets(records, quotas, stack, say, prices)
    context = ContextStage(contexts, say)
    stack.callback(context.close)
    stages = Stages(
        usage_open=usage.open,
        receipt_open=None if receipts is None else receipts.open,
        budget_reserve=budgets.reserve,
        request_policy=request_policy,
        context=context.trim,
        response_policy=ResponsePolicy(policies),
        budget_settle=budgets.settle,
        audit=AuditStage(decisions).note,
        receipt=None if receipts is None else receipts.close,
        usage_record=usage.record,
    )
    explained = ExplainedStages(
        lambda: budgets_in_force.of_account,
        ledger,
        prices.of_account,
        policies,
        request_policy,
        context,
        settings.receipts,
    )
    return StageSide(stages, ledger, policies, explained)


async def _budgets(
    records: Followed,
    quotas: SqlQuotaLedger,
    stack: contextlib.AsyncExitStack,
    say: Callable[[str], None],
    prices: PricesInForce,
) -> tuple[BudgetsInForce, SqlBudgetLedger, BudgetStages]:
    """Counted where quotas are. Raises ControlError."""
    budgets = BudgetsInForce()
    await records.keep(budgets, "budgets")
    ledger = SqlBudgetLedger(quotas.database, say, teller(budgets.with_id, say))
    stack.push_async_callback(ledger.close)
    await stack.enter_async_context(running(ledger.watch(time.time), "budget ledger"))
    return budgets, ledger, BudgetStages(lambda: budgets.of_account, ledger, say, time.time, prices.of_account)
