"""The stages `budget_reserve` and `budget_settle` of the data listener.

Owns when they ask the ledger, and that a soft budget is told of once per window. Which budgets there are is
`budgets_in_force`'s; which apply to a request, and what it comes to, `routing.budgets`'; counting is the ledger's.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.budget import Budget, BudgetRefusal, Hold
from pointsman.core.budget_window import BudgetCalendar
from pointsman.core.caller import Caller
from pointsman.core.fault_place import fault_place
from pointsman.core.model_errors import BudgetExhausted, BudgetUncounted
from pointsman.core.price import NO_PRICES, PriceTable, Tokens
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.time_zones import zone_named
from pointsman.events.record import Record
from pointsman.gateway.stages.tokens import tokens_of
from pointsman.proxy.budgets import BudgetLedger
from pointsman.proxy.stages import Passage
from pointsman.routing.budgets import (
    NO_USE,
    Applying,
    Standing,
    Use,
    applying,
    may_come_to,
    shown,
    told_refusal,
)
from pointsman.store.budget_ledger import Counted
from pointsman.wire.output_bound import output_bound_of, read_output_bound

_ONE_REQUEST = Use(1)
_LARGE_BODY = 512 * 1024
"""Larger ones take a millisecond and more to be read."""
_MOST_KNOWN = 10_000
"""Pairs of a caller and a route whose budgets are known; beyond, they are found anew."""


class Held:
    """What a request holds, and what is needed to settle it. Not a dataclass: on the hot path."""

    __slots__ = ("hold", "standing")

    def __init__(self, hold: Hold, standing: Standing) -> None:
        self.hold = hold
        self.standing = standing


class BudgetStages:
    """For one data listener. `in_force` gives the budgets of accounts that have any, in the same mapping until they
    change, `now` epoch seconds, and `prices_of` an account's prices of the moment."""

    def __init__(
        self,
        in_force: Callable[[], Mapping[str, Sequence[Budget]]],
        ledger: BudgetLedger,
        say: Callable[[str], None],
        now: Callable[[], float],
        prices_of: Callable[[str], PriceTable] = lambda _: NO_PRICES,
    ) -> None:
        self._in_force = in_force
        self._ledger = ledger
        self._say = say
        self._now = now
        self._prices_of = prices_of
        self._calendar = BudgetCalendar(zone_named)
        self._known: dict[tuple[Caller, str], Standing] = {}
        self._known_of: Mapping[str, Sequence[Budget]] = {}

    async def reserve(self, passage: Passage) -> None:
        """The stage `budget_reserve`. Raises BudgetExhausted and BudgetUncounted."""
        record = passage.record
        in_force = self._in_force()
        if record.caller.account not in in_force:
            return
        standing = self._standing(in_force, record.caller, record.route)
        if not standing.applied:
            return
        now, use = self._now(), _ONE_REQUEST
        if standing.counts_tokens:
            if len(passage.body) > _LARGE_BODY:
                await asyncio.sleep(0)  # its model was read in this turn: reading it again is the next one's work
            prices = self._prices_of(record.caller.account)
            document, asked = passage.document, (record.protocol, record.path)
            bound = read_output_bound(passage.body) if document is None else output_bound_of(document.value)
            use = may_come_to(passage.target, len(passage.body), bound, asked, prices)
        charges = standing.charges(use, now, lambda kind, zone: self._calendar.at(kind, zone, now))
        try:
            hold = await self._ledger.reserve(record.caller.account, charges, now)
        except LedgerUnavailable as error:
            raise BudgetUncounted(str(error)) from None
        if isinstance(hold, BudgetRefusal):
            passage.notes.refused_budget = _refusing(hold, standing.applied).name
            raise exhausted(hold, standing.applied, use, now)
        passage.notes.hold, passage.notes.budgets = Held(hold, standing), standing.names

    def _standing(self, in_force: Mapping[str, Sequence[Budget]], caller: Caller, route: str) -> Standing:
        if in_force is not self._known_of or len(self._known) > _MOST_KNOWN:
            self._known, self._known_of = {}, in_force
        known = self._known.get((caller, route))
        if known is None:
            known = self._known[caller, route] = Standing(applying(in_force[caller.account], caller, route))
        return known

    def settle(self, record: Record) -> None:
        """The stage `budget_settle`."""
        notes = record.notes
        if notes is None or not isinstance(notes.hold, Held):
            return
        held = notes.hold
        try:
            amounts = held.standing.amounts(self._use_of(record, held))
        except Exception as error:  # requests end here, and must; what was reserved stays counted
            self._say(f"budgets: a request could not be settled: internal error: {fault_place(error)}")
            return
        self._ledger.settle(held.hold, amounts)

    def _use_of(self, record: Record, held: Held) -> Use:
        """What it came to. An upstream whose answer nobody got has its work all the same."""
        notes = record.notes
        if notes is None or not (record.is_answered or record.was_sent):
            return NO_USE
        tokens = tokens_of(record) if held.standing.counts_tokens else None
        if tokens is None:
            return _ONE_REQUEST
        return Use(1, tokens, self._cost(record, tokens))

    def _cost(self, record: Record, tokens: Tokens) -> int:
        candidate = record.candidate
        if candidate is None:
            return 0
        return self._prices_of(record.caller.account).cost(candidate.provider, candidate.model, tokens) or 0


def exhausted(refusal: BudgetRefusal, applied: Sequence[Applying], use: Use, now: float) -> BudgetExhausted:
    """What a request is refused with."""
    budget = _refusing(refusal, applied)
    asked = use.of(budget.unit)
    told = told_refusal(budget, asked, refusal.retry_at, _written(refusal.retry_at))
    can_fit = asked <= budget.amount and not math.isinf(refusal.retry_at)
    return BudgetExhausted(told, refusal.retry_at - now if can_fit else None)


def _refusing(refusal: BudgetRefusal, applied: Sequence[Applying]) -> Budget:
    return next(each.budget for each in applied if each.budget.id == refusal.budget)


def _written(moment: float) -> str:
    """To the second, in UTC; empty for never."""
    return "" if math.isinf(moment) else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def teller(with_id: Callable[[str], Budget | None], say: Callable[[str], None]) -> Callable[[Counted], None]:
    """Of all steps of soft budgets' counters, says those by which one is used up."""

    def counted(step: Counted) -> None:
        budget = with_id(step.key.budget)
        if budget is not None and step.before <= budget.amount < step.used:
            say(told_overrun(budget, step))

    return counted


def told_overrun(budget: Budget, step: Counted) -> str:
    """What the operator reads of a soft budget that was just used up: once per window."""
    account = "" if budget.account == DEFAULT_ACCOUNT else f" of {budget.account}"
    of_whom = f" for {budget.scope.value} {step.key.subject}" if step.key.subject else ""
    window = f" of {step.key.window}" if step.key.window else ""
    used, all_of_it = shown(budget.unit, step.used), shown(budget.unit, budget.amount)
    name = f"budget {budget.name}{account}"
    return f"{name}: used up{of_whom}{window}: {used} of {all_of_it}; it is soft: requests go on"
