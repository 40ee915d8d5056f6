"""A budget ledger without a database: exact in one process, forgotten at its end. For tests."""

from collections.abc import Sequence

from pointsman.core.budget import BudgetRefusal, Charge, Hold
from pointsman.routing.budgets import refusal_of

_Key = tuple[str, str, str]


class MemoryBudgetLedger:
    """The BudgetLedger of `budgets`."""

    def __init__(self) -> None:
        self.used: dict[_Key, int] = {}
        """By budget, subject and window."""

    async def reserve(self, account: str, charges: Sequence[Charge], now: float) -> Hold | BudgetRefusal:
        """See BudgetLedger. Never raises LedgerUnavailable."""
        hard = [each for each in charges if each.limit is not None]
        refusal = refusal_of(hard, self._used)
        if refusal is not None:
            return refusal
        for each in hard:
            self.used[_key_of(each)] = self._used(each) + each.amount
        return Hold(account, charges)

    async def look(self, account: str, charges: Sequence[Charge]) -> Sequence[int]:
        """See BudgetLedger."""
        return [self._used(each) for each in charges]

    def settle(self, hold: Hold, amounts: Sequence[int]) -> None:
        """See BudgetLedger."""
        if hold.is_settled:
            return
        hold.is_settled = True
        for charge, amount in zip(hold.charges, amounts, strict=True):
            reserved = 0 if charge.limit is None else charge.amount
            if amount != reserved or _key_of(charge) in self.used:
                self.used[_key_of(charge)] = max(self._used(charge) + amount - reserved, 0)

    def _used(self, charge: Charge) -> int:
        return self.used.get(_key_of(charge), 0)


def _key_of(charge: Charge) -> _Key:
    return charge.budget, charge.subject, charge.window
