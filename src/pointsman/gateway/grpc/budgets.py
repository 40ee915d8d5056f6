"""`pointsman.v1.Budgets`: how much may be used."""

from typing import Any, TypeAlias

import grpc.aio

from pointsman.core.budget import Budget
from pointsman.gateway.budgets import BudgetDraft, BudgetEdit, Budgets, BudgetState, resets_at, written_amount
from pointsman.gateway.grpc.gate import caller
from pointsman.rpc.gen import budgets_pb2 as pb
from pointsman.rpc.gen import budgets_pb2_grpc

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class BudgetsServicer(budgets_pb2_grpc.BudgetsServicer):
    """Translates; every decision is an operation's."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets

    async def CreateBudget(self, request: pb.CreateBudgetRequest, context: _Context) -> pb.Budget:
        """A new budget, of which nothing is used."""
        draft = BudgetDraft(
            request.name.strip(),
            request.scope,
            request.subject.strip(),
            request.unit,
            request.amount.strip(),
            request.window,
            request.time_zone.strip(),
            request.soft,
        )
        return budget_message(await self._budgets.create(caller().account, draft))

    async def UpdateBudget(self, request: pb.UpdateBudgetRequest, context: _Context) -> pb.Budget:
        """Change what is given, in one step."""
        edit = BudgetEdit(
            request.amount.strip() if request.HasField("amount") else None,
            request.time_zone.strip() if request.HasField("time_zone") else None,
            request.soft if request.HasField("soft") else None,
        )
        return budget_message(await self._budgets.update(caller().account, request.name.strip(), edit))

    async def GetBudget(self, request: pb.GetBudgetRequest, context: _Context) -> pb.Budget:
        """One budget."""
        return budget_message(await self._budgets.get(caller().account, request.name.strip()))

    async def ListBudgets(self, request: pb.ListBudgetsRequest, context: _Context) -> pb.ListBudgetsResponse:
        """All of the account."""
        return pb.ListBudgetsResponse(budgets=map(budget_message, await self._budgets.list(caller().account)))

    async def DeleteBudget(self, request: pb.DeleteBudgetRequest, context: _Context) -> pb.DeleteBudgetResponse:
        """Delete a budget, and forget what was used of it."""
        return pb.DeleteBudgetResponse(deleted=await self._budgets.delete(caller().account, request.name.strip()))

    async def GetBudgetStatus(
        self, request: pb.GetBudgetStatusRequest, context: _Context
    ) -> pb.GetBudgetStatusResponse:
        """What was used in current windows."""
        states = await self._budgets.status(caller().account, request.name.strip())
        return pb.GetBudgetStatusResponse(budgets=map(_state_message, states))


def budget_message(budget: Budget) -> pb.Budget:
    """A budget."""
    return pb.Budget(
        name=budget.name,
        account=budget.account,
        scope=budget.scope.value,
        subject=budget.subject,
        unit=budget.unit.value,
        amount=written_amount(budget.unit, budget.amount),
        window=budget.window.value,
        time_zone=budget.time_zone,
        soft=not budget.is_hard,
        version=budget.version,
    )


def _state_message(state: BudgetState) -> pb.BudgetStatus:
    unit, end = state.budget.unit, resets_at(state.window)
    return pb.BudgetStatus(
        budget=budget_message(state.budget),
        subject=state.subject,
        window=state.window.name,
        used=written_amount(unit, state.used),
        left=written_amount(unit, state.left),
        resets_at_ms=0 if end is None else round(end * 1000),
    )
