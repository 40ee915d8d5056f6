"""Operations on budgets. What is done with them at each request is `stages.budgets`'."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pointsman.core.budget import EACH, MOST, MOST_BUDGETS, Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.budget_window import Window, window_at
from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow, StoreUnavailable
from pointsman.core.money import parse_amount, shown_amount
from pointsman.core.provider import check_name
from pointsman.core.quota import DEFAULT_ZONE, LedgerUnavailable
from pointsman.core.route import RESERVED_NAMES
from pointsman.core.time_zones import UnknownZone, zone_named
from pointsman.gateway.named_routes import named_route
from pointsman.routing.budgets import shown
from pointsman.store.budget_ledger import SqlBudgetLedger, Used
from pointsman.store.budget_turns import CounterKey
from pointsman.store.interface import Reader, Store

_SEE = {
    BudgetScope.KEY: "pointsman key list",
    BudgetScope.ROUTE: "pointsman route list",
    BudgetScope.SANDBOX: "pointsman sandbox token list",
}


@dataclass(frozen=True, slots=True)
class BudgetDraft:
    """What a budget is to be, in words."""

    name: str
    scope: str
    subject: str
    unit: str
    amount: str
    window: str
    time_zone: str = ""
    """Empty: UTC."""
    is_soft: bool = False


@dataclass(frozen=True, slots=True)
class BudgetEdit:
    """What is to change; None: nothing."""

    amount: str | None = None
    time_zone: str | None = None
    is_soft: bool | None = None


@dataclass(frozen=True, slots=True)
class BudgetState:
    """What was used of a budget, by one of those whom it is for."""

    budget: Budget
    subject: str
    window: Window
    used: int

    @property
    def left(self) -> int:
        """Never below 0."""
        return max(self.budget.amount - self.used, 0)


class Budgets:
    """Makes, changes, lists and deletes them, and tells what was used. `made_id` gives an id that no other has."""

    def __init__(
        self, store: Store, clock: Callable[[], float], made_id: Callable[[], str], say: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._made_id = made_id
        self._say = say
        self._ledger: SqlBudgetLedger | None = None

    def count_by(self, ledger: SqlBudgetLedger) -> None:
        """Where what was used is known from now on."""
        self._ledger = ledger

    async def create(self, account: str, draft: BudgetDraft) -> Budget:
        """A new one, of which nothing is used. Raises InvalidRequest, NotFound (of whom it is for), AlreadyExists."""
        budget = self._made(account, draft)
        async with self._store.write() as writer:
            await _check_subject(writer, budget)
            if len(await writer.budgets(account)) >= MOST_BUDGETS:
                raise NotPossibleNow(f"the account has {MOST_BUDGETS} budgets, and no more can be; delete one")
            await writer.insert_budget(budget)
        self._say(f"budget {budget.name} of {account}: created: {told(budget)}")
        return budget

    def _made(self, account: str, draft: BudgetDraft) -> Budget:
        check_name(draft.name, "budget's name")
        scope = BudgetScope(_one_of(draft.scope, BudgetScope, "scope"))
        if scope is BudgetScope.ACCOUNT and draft.subject:
            raise InvalidRequest("a budget of the account is for nobody else; leave the name out")
        if scope is not BudgetScope.ACCOUNT and not draft.subject:
            raise InvalidRequest(f"name the {scope.value} that it is for, or * for each by itself")
        unit = BudgetUnit(_one_of(draft.unit, BudgetUnit, "unit"))
        window = BudgetWindow(_one_of(draft.window, BudgetWindow, "window"))
        amount, zone = parse_budget_amount(unit, draft.amount), _zone(draft.time_zone)
        hard, made = not draft.is_soft, self._made_id()
        return Budget(account, draft.name, scope, draft.subject, unit, amount, window, zone, hard, 1, made)

    async def update(self, account: str, name: str, edit: BudgetEdit) -> Budget:
        """What it is then. Raises NotFound, InvalidRequest."""
        async with self._store.write() as writer:
            budget = await _found(writer, account, name)
            changed = replace(
                budget,
                amount=budget.amount if edit.amount is None else parse_budget_amount(budget.unit, edit.amount),
                time_zone=budget.time_zone if edit.time_zone is None else _zone(edit.time_zone),
                is_hard=budget.is_hard if edit.is_soft is None else not edit.is_soft,
                version=budget.version + 1,
            )
            await writer.replace_budget(changed)
        self._say(f"budget {name} of {account}: changed: {told(changed)}")
        return changed

    async def get(self, account: str, name: str) -> Budget:
        """One. Raises NotFound."""
        async with self._store.read() as reader:
            return await _found(reader, account, name)

    async def list(self, account: str) -> Sequence[Budget]:
        """All of an account's, by name."""
        async with self._store.read() as reader:
            return await reader.budgets(account)

    async def delete(self, account: str, name: str) -> bool:
        """Whether there was one. What was used of it is forgotten: another of this name begins at nothing."""
        async with self._store.write() as writer:
            budget = await writer.budget(account, name)
            if budget is None:
                return False
            await writer.delete_budget(account, name)
        self._say(f"budget {name} of {account}: deleted")
        if self._ledger is not None:
            with contextlib.suppress(LedgerUnavailable):  # counters of nobody, which refuse nothing
                await self._ledger.forget(budget.id)
        return True

    async def status(self, account: str, name: str = "") -> Sequence[BudgetState]:
        """What was used of one or all in their current windows. Raises NotFound, NotPossibleNow, StoreUnavailable."""
        budgets = [await self.get(account, name)] if name else await self.list(account)
        if self._ledger is None:
            raise NotPossibleNow("nothing is counted yet: the gateway is starting; try again")
        now = self._clock()
        try:
            used = await self._ledger.used(account, now)
        except LedgerUnavailable as error:
            raise StoreUnavailable(str(error)) from None
        return [state for budget in budgets for state in _states(budget, used, now)]


def _states(budget: Budget, used: Sequence[Used], now: float) -> Sequence[BudgetState]:
    window = window_at(budget.window, zone_named(budget.time_zone), now)
    counted: Mapping[CounterKey, int] = {each.key: each.used for each in used}
    mine = sorted(key.subject for key in counted if (key.budget, key.window) == (budget.id, window.name))
    named = mine or [budget.subject]
    keys = [CounterKey(budget.id, subject, window.name) for subject in named]
    return [BudgetState(budget, key.subject, window, counted.get(key, 0)) for key in keys]


async def _found(reader: Reader, account: str, name: str) -> Budget:
    budget = await reader.budget(account, name)
    if budget is None:
        raise NotFound(f"budget {name[:64]!r} does not exist; see: pointsman budget list")
    return budget


async def _check_subject(reader: Reader, budget: Budget) -> None:
    """A budget for somebody who does not exist would limit nobody."""
    account, name, scope = budget.account, budget.subject, budget.scope
    if scope is BudgetScope.ACCOUNT or name == EACH:
        return
    found: object | None
    match scope:
        case BudgetScope.KEY:
            found = await reader.key(account, name)
        case BudgetScope.SANDBOX:
            found = await reader.sandbox_token(account, name)
        case BudgetScope.ROUTE:
            found = name in RESERVED_NAMES or await named_route(reader, account, name)
    if not found:
        what = "sandbox token" if scope is BudgetScope.SANDBOX else scope.value
        raise NotFound(f"there is no {what} {name[:64]!r}; see: {_SEE[scope]}")


def _one_of(word: str, words: type[BudgetScope] | type[BudgetUnit] | type[BudgetWindow], what: str) -> str:
    known = [each.value for each in words]
    if word not in known:
        raise InvalidRequest(f"there is no {what} {word[:64]!r}; there are {', '.join(known)}")
    return word


def _zone(name: str) -> str:
    try:
        zone_named(name or DEFAULT_ZONE)
    except UnknownZone as error:
        raise InvalidRequest(str(error)) from None
    return name or DEFAULT_ZONE


def parse_budget_amount(unit: BudgetUnit, text: str) -> int:
    """Of a unit, as people write it. Raises InvalidRequest."""
    problem = f"is not between 0 and {written_amount(unit, MOST)}"
    try:
        if unit is BudgetUnit.MONEY:
            amount = parse_amount(text)
        elif text.isascii() and text.isdigit() and len(text) <= len(str(MOST)):
            amount = int(text)
        else:
            raise ValueError("is no whole number")
        if amount <= MOST:
            return amount
    except ValueError as error:
        problem = str(error)
    raise InvalidRequest(f"the amount {text[:40]!r} {problem}")


def written_amount(unit: BudgetUnit, amount: int) -> str:
    """What `parse_budget_amount` reads."""
    return shown_amount(amount) if unit is BudgetUnit.MONEY else str(amount)


def resets_at(window: Window) -> float | None:
    """Seconds since the epoch; None for never."""
    return None if math.isinf(window.end) else window.end


def told(budget: Budget) -> str:
    """A budget in one line."""
    of_whom = budget.scope.value if budget.scope is BudgetScope.ACCOUNT else f"{budget.scope.value} {budget.subject}"
    zone = "" if budget.window is BudgetWindow.TOTAL else f" ({budget.time_zone})"
    article = "an" if budget.window is BudgetWindow.HOUR else "a"
    per = "in total" if budget.window is BudgetWindow.TOTAL else f"{article} {budget.window.value}{zone}"
    return f"{shown(budget.unit, budget.amount)} {per} for {of_whom}" + ("" if budget.is_hard else ", soft")
