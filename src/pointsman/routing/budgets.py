"""Which budgets a request counts for, what is reserved for it, and what it comes to. Pure."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pointsman.core.attempts import Chain, Member
from pointsman.core.budget import Budget, BudgetRefusal, BudgetUnit, BudgetWindow, Charge
from pointsman.core.budget_window import Window
from pointsman.core.caller import Caller
from pointsman.core.candidate import Candidate
from pointsman.core.model_table import Target
from pointsman.core.money import shown_amount
from pointsman.core.price import PriceTable, Tokens
from pointsman.routing.tokens_used import is_counting, may_use
from pointsman.wire.output_bound import OutputBound

WindowOf = Callable[[BudgetWindow, str], Window]
"""The current one of a kind, in a zone."""


@dataclass(frozen=True, slots=True)
class Applying:
    """A budget that a request counts for, and under whose name."""

    budget: Budget
    subject: str


class Use(NamedTuple):
    """What one request comes to, or may come to, in every unit. A tuple, since some are made per request."""

    requests: int = 0
    tokens: Tokens = Tokens()
    money: int = 0

    def of(self, unit: BudgetUnit) -> int:
        """In one."""
        return _amounts(self)[_UNITS.index(unit)]


NO_USE = Use()


def applying(budgets: Iterable[Budget], caller: Caller, route: str) -> tuple[Applying, ...]:
    """Those that a request of a caller on a route counts for, in the order that they are given in."""
    found = ((each, each.subject_of(caller, route)) for each in budgets)
    return tuple(Applying(budget, subject) for budget, subject in found if subject is not None)


class Standing:
    """The budgets that apply to one caller's requests on one route, and their windows of the moment.

    Not a dataclass: it is asked for every request, and computes anew only when a window is over.
    """

    __slots__ = ("_counters", "_since", "_units", "_until", "applied", "counts_tokens", "names")

    def __init__(self, applied: tuple[Applying, ...]) -> None:
        self.applied = applied
        self.names = ",".join(each.budget.name for each in applied)
        self.counts_tokens = any(each.budget.unit is not BudgetUnit.REQUESTS for each in applied)
        """Whether anything but requests is counted, so that a body must be looked at."""
        self._units = [_UNITS.index(each.budget.unit) for each in applied]
        self._counters: list[tuple[str, str, str, float, int, int | None]] = []
        self._since = self._until = math.inf

    def charges(self, use: Use, now: float, window_of: WindowOf) -> list[Charge]:
        """What is reserved with each."""
        if not self._since <= now < self._until:
            self._look(window_of)
        amounts = _amounts(use)
        return [
            Charge(budget, subject, window, end, amounts[unit], limit)
            for budget, subject, window, end, unit, limit in self._counters
        ]

    def _look(self, window_of: WindowOf) -> None:
        self._since, self._until = -math.inf, math.inf
        self._counters = []
        for each, unit in zip(self.applied, self._units, strict=True):
            budget, window = each.budget, window_of(each.budget.window, each.budget.time_zone)
            self._since, self._until = max(self._since, window.since), min(self._until, window.end)
            limit = budget.amount if budget.is_hard else None
            self._counters.append((budget.id, each.subject, window.name, window.end, unit, limit))

    def amounts(self, use: Use) -> list[int]:
        """What a request came to with each."""
        amounts = _amounts(use)
        return [amounts[unit] for unit in self._units]


_UNITS = (BudgetUnit.REQUESTS, BudgetUnit.TOKENS, BudgetUnit.MONEY)


def _amounts(use: Use) -> tuple[int, int, int]:
    """In each of `_UNITS`."""
    return use.requests, use.tokens.input + use.tokens.output, use.money


def may_come_to(target: Target, length: int, bound: OutputBound, asked: tuple[str, str], prices: PriceTable) -> Use:
    """The most that one request is expected to come to, whoever of a chain answers.

    `length`: of its body in bytes; `asked`: its dialect and path.
    """
    protocol, path = asked
    tokens = may_use(length, bound, protocol, path)
    return Use(1, tokens, 0 if is_counting(path) else dearest(target, tokens, prices))


def dearest(target: Target, tokens: Tokens, prices: PriceTable) -> int:
    """What so many tokens cost at most, whoever of a chain answers; what is unpriced costs nothing.

    A chain that sends on the client's model may be asked for any that a provider has.
    """
    if not isinstance(target, Chain):
        candidate = target if isinstance(target, Candidate) else target.candidate
        return prices.cost(candidate.provider, candidate.model, tokens) or 0
    costs = [_cost_of_member(each, tokens, prices, any_model=target.forwards_model) for each in target.all_members]
    return max(costs, default=0)


def _cost_of_member(member: Member, tokens: Tokens, prices: PriceTable, *, any_model: bool) -> int:
    name = member.candidate.provider
    own = prices.cost(name, member.candidate.model, tokens) or 0
    if not any_model:
        return own
    models = [model for provider, model in prices.prices if provider == name]
    return max([own, *(prices.cost(name, model, tokens) or 0 for model in models)])


def has_room(charge: Charge, used: int) -> bool:
    """Whether what is charged fits into what is left; into a soft budget everything does."""
    return charge.limit is None or used + charge.amount <= charge.limit


def refusal_of(charges: Iterable[Charge], used: Callable[[Charge], int]) -> BudgetRefusal | None:
    """The charge without room whose window is over last, the first of several; None when all have room."""
    full = [each for each in charges if not has_room(each, used(each))]
    if not full:
        return None
    last = max(full, key=lambda each: each.ends_at)
    return BudgetRefusal(last.budget, last.ends_at)


def shown(unit: BudgetUnit, amount: int) -> str:
    """An amount for people: `12 requests`, `4096 tokens`, `0.25 of money`."""
    return f"{shown_amount(amount)} of money" if unit is BudgetUnit.MONEY else f"{amount} {unit.value}"


def told_refusal(budget: Budget, asked: int, retry_at: float, until: str) -> str:
    """What the client hears of a budget without room. `until`: the moment `retry_at`, written out."""
    name = f"the budget {budget.name!r}"
    if budget.amount == 0:
        return f"{name} has no room for any request; ask whoever runs this gateway for more"
    hint = "" if budget.unit is BudgetUnit.REQUESTS else "; a lower max_tokens may fit"
    if asked > budget.amount:
        asked_for, all_of_it = shown(budget.unit, asked), shown(budget.unit, budget.amount)
        return f"this request may come to {asked_for}, and all of {name} is {all_of_it}{hint}"
    if math.isinf(retry_at):
        return f"{name} has no room for this request{hint}; ask whoever runs this gateway for more"
    return f"{name} has no room for this request until {until}{hint}"
