"""`/budgets` as HTTP: what may be sent, and what is answered. For the admin alone."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Depends, FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.control_errors import NotFound
from pointsman.core.provider import LONGEST_NAME
from pointsman.gateway.budgets import BudgetDraft, BudgetEdit, BudgetState, resets_at, written_amount
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.rest.admission import account_of, name_in_path
from pointsman.gateway.rest.endpoints import BASE
from pointsman.gateway.rest.requests import Name

AccountName = Annotated[str, Depends(account_of)]
PathName = Annotated[str, Depends(name_in_path)]
Scope = Literal["account", "key", "route", "sandbox"]
Unit = Literal["requests", "tokens", "money"]
WindowName = Literal["minute", "hour", "day", "month", "total"]
Amount = Annotated[
    str,
    Field(
        min_length=1,
        max_length=40,
        description="A whole number; of money, a decimal one in the unit of the prices.",
        examples=["50"],
    ),
]
TimeZone = Annotated[str, Field(min_length=1, max_length=64, description="An IANA name.", examples=["Europe/Budapest"])]
Soft = Annotated[bool, Field(description="Told of when it is used up, instead of refusing.")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class NewBudget(_Request):
    """A budget to create."""

    name: Name
    scope: Scope = Field(description="Whose use is counted together.")
    subject: str = Field(
        default="",
        max_length=LONGEST_NAME,
        description="The key's, route's or sandbox token's name, or * for each by itself; empty for the account.",
    )
    unit: Unit
    amount: Amount
    window: WindowName
    time_zone: TimeZone = "UTC"
    soft: Soft = False

    def draft(self) -> BudgetDraft:
        """The same for an operation."""
        return BudgetDraft(
            self.name, self.scope, self.subject, self.unit, self.amount, self.window, self.time_zone, self.soft
        )


class BudgetChanges(_Request):
    """What is to change of a budget; what is left out stays. What was used stays counted, unless the zone changes."""

    amount: Amount | None = None
    time_zone: TimeZone | None = None
    soft: Soft | None = None

    def edit(self) -> BudgetEdit:
        """The same for an operation."""
        return BudgetEdit(self.amount, self.time_zone, self.soft)


class BudgetAnswer(BaseModel):
    """A budget."""

    name: str
    scope: BudgetScope
    subject: str
    unit: BudgetUnit
    amount: str
    window: BudgetWindow
    time_zone: str
    soft: bool
    version: int

    @classmethod
    def of(cls, budget: Budget) -> "BudgetAnswer":
        """A record as it is shown."""
        return cls(
            name=budget.name,
            scope=budget.scope,
            subject=budget.subject,
            unit=budget.unit,
            amount=written_amount(budget.unit, budget.amount),
            window=budget.window,
            time_zone=budget.time_zone,
            soft=not budget.is_hard,
            version=budget.version,
        )


class BudgetList(BaseModel):
    """All budgets, by name."""

    budgets: list[BudgetAnswer]


class BudgetDeletion(BaseModel):
    """A budget was deleted, and what was used of it forgotten."""

    deleted: bool


class BudgetUse(BaseModel):
    """What was used of a budget in its current window, by one of those whom it is for."""

    budget: BudgetAnswer
    subject: str = Field(description="* of a budget for each that nobody has used in this window.")
    window: str = Field(description="Its name; empty for the total.")
    used: str = Field(description="What requests that are under way may come to is in it.")
    left: str
    resets_at: datetime | None = Field(description="null: never.")

    @classmethod
    def of(cls, state: BudgetState) -> "BudgetUse":
        """A state as it is shown."""
        unit, end = state.budget.unit, resets_at(state.window)
        return cls(
            budget=BudgetAnswer.of(state.budget),
            subject=state.subject,
            window=state.window.name,
            used=written_amount(unit, state.used),
            left=written_amount(unit, state.left),
            resets_at=None if end is None else datetime.fromtimestamp(end, UTC),
        )


class BudgetUseList(BaseModel):
    """By name of the budget, and then by subject."""

    budgets: list[BudgetUse]


class BudgetEndpoints:
    """`/budgets`."""

    def __init__(self, control: ControlPlane) -> None:
        self._budgets = control.budgets

    async def list(self, account: AccountName) -> BudgetList:
        """All budgets by name."""
        return BudgetList(budgets=[BudgetAnswer.of(each) for each in await self._budgets.list(account)])

    async def create(self, account: AccountName, body: NewBudget, response: Response) -> BudgetAnswer:
        """Create a budget."""
        budget = await self._budgets.create(account, body.draft())
        response.headers["location"] = f"{BASE}/budgets/{quote(budget.name)}"
        return BudgetAnswer.of(budget)

    async def get(self, account: AccountName, name: PathName) -> BudgetAnswer:
        """One budget."""
        return BudgetAnswer.of(await self._budgets.get(account, name))

    async def update(self, account: AccountName, name: PathName, body: BudgetChanges) -> BudgetAnswer:
        """Change what is given of a budget, in one step."""
        return BudgetAnswer.of(await self._budgets.update(account, name, body.edit()))

    async def delete(self, account: AccountName, name: PathName) -> BudgetDeletion:
        """Delete a budget, and forget what was used of it."""
        if not await self._budgets.delete(account, name):
            raise NotFound(f"budget {name[:64]!r} does not exist; see {BASE}/budgets")
        return BudgetDeletion(deleted=True)

    async def use(self, account: AccountName) -> BudgetUseList:
        """What was used of each budget in its current window."""
        return BudgetUseList(budgets=[BudgetUse.of(each) for each in await self._budgets.status(account)])

    async def use_of(self, account: AccountName, name: PathName) -> BudgetUseList:
        """The same of one budget."""
        return BudgetUseList(budgets=[BudgetUse.of(each) for each in await self._budgets.status(account, name)])


def add_budgets(api: FastAPI, control: ControlPlane) -> None:
    """Add the paths."""
    budgets = BudgetEndpoints(control)
    many, one = f"{BASE}/budgets", f"{BASE}/budgets/{{name}}"
    created: dict[str, Any] = {"status_code": 201}
    for method, path, endpoint, name, options in (
        ("GET", many, budgets.list, "list_budgets", {}),
        ("POST", many, budgets.create, "create_budget", created),
        ("GET", one, budgets.get, "get_budget", {}),
        ("PATCH", one, budgets.update, "update_budget", {}),
        ("DELETE", one, budgets.delete, "delete_budget", {}),
        ("GET", f"{BASE}/budget-status", budgets.use, "budget_status", {}),
        ("GET", f"{BASE}/budget-status/{{name}}", budgets.use_of, "status_of_budget", {}),
    ):
        api.router.add_api_route(path, endpoint, methods=[method], operation_id=name, **options)
