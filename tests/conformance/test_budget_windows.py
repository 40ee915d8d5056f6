"""Requests at the edges of budgets' windows, and budgets that change while requests hold them, on databases."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from bench.chain_cost import request_to

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.caller import KEY, Caller
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.model_errors import BudgetExhausted
from pointsman.events.record import Record
from pointsman.gateway.stages.budgets import BudgetStages, teller
from pointsman.proxy.stages import Passage
from pointsman.store.budget_ledger import SqlBudgetLedger
from tests.conformance.budgets import ACCOUNT, opened_budgets
from tests.conformance.ledgers import Counting, at

CANDIDATE = Candidate("fast", parse_endpoint("http://127.0.0.1:1/v1"), "real", (), provider="groq")
BUDAPEST = "Europe/Budapest"
MINUTE_END = at("UTC", "2026-12-01T13:06")


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest) -> Counting:
    database: Counting = request.getfixturevalue(f"{request.param}_counting")
    return database


def budget(amount: int, window: BudgetWindow, zone: str = "UTC", *, is_hard: bool = True, name: str = "b") -> Budget:
    whose = (BudgetScope.ACCOUNT, "", BudgetUnit.REQUESTS)
    return Budget(ACCOUNT, name, *whose, amount, window, zone, is_hard, id=name)


@dataclass
class Worker:
    """The stages of one gateway process, whose clock is the test's."""

    ledger: SqlBudgetLedger
    now: float = MINUTE_END
    budgets: Sequence[Budget] = ()
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def in_force() -> dict[str, Sequence[Budget]]:
            return {ACCOUNT: self.budgets} if self.budgets else {}

        self.stages = BudgetStages(in_force, self.ledger, self.said.append, lambda: self.now)

    async def begin(self) -> Record:
        record = Record("r", self.now, "POST", "/v1/chat/completions", "openai_chat_completions")
        record.caller, record.route, record.candidate = Caller(ACCOUNT, "ada", KEY), "fast", CANDIDATE
        await self.stages.reserve(Passage(request_to("direct"), record, CANDIDATE))
        return record

    async def end(self, record: Record, *, answered: bool = True) -> None:
        record.status, record.is_answered = (200, True) if answered else (503, False)
        self.stages.settle(record)
        await self.ledger.write()

    async def refused(self) -> float:
        """Seconds until there is room."""
        with pytest.raises(BudgetExhausted) as caught:
            await self.begin()
        return caught.value.retry_after_seconds or 0.0

    async def used(self, name: str = "b") -> dict[str, int]:
        found = await self.ledger.used(ACCOUNT, 0.0)
        return {each.key.window: each.used for each in found if each.key.budget == name}


@pytest.mark.parametrize("answered", [True, False])
async def test_a_request_that_ends_in_the_next_minute_is_settled_in_its_own(stored: Counting, answered: bool) -> None:
    async with opened_budgets(stored) as ledger:
        worker = Worker(ledger, MINUTE_END - 0.001, (budget(1, BudgetWindow.MINUTE),))
        first = await worker.begin()
        assert 0 < await worker.refused() <= 0.0011
        worker.now = MINUTE_END
        second = await worker.begin()
        await worker.end(first, answered=answered)
        old, new = "2026-12-01T13:05+00:00", "2026-12-01T13:06+00:00"
        assert await worker.used() == {old: int(answered), new: 1}
        assert await worker.refused() == 60.0
        await worker.end(second, answered=False)
        assert await worker.used() == {old: int(answered), new: 0}


async def test_an_hour_that_comes_twice_has_room_twice_and_the_day_around_it_once(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        hour, day = budget(1, BudgetWindow.HOUR, BUDAPEST), budget(2, BudgetWindow.DAY, BUDAPEST, name="day")
        worker = Worker(ledger, at(BUDAPEST, "2026-10-25T02:59:59"), (hour, day))
        first = await worker.begin()
        assert await worker.refused() == 1.0
        worker.now += 1.0  # it is 02:00 again
        await worker.end(await worker.begin())
        worker.budgets = (hour,)
        assert await worker.refused() == 3600.0
        worker.budgets = (day,)
        assert await worker.refused() == 22 * 3600.0
        await worker.end(first)
        assert await worker.used() == {"2026-10-25T02+02:00": 1, "2026-10-25T02+01:00": 1}
        assert await worker.used("day") == {"2026-10-25": 2}


async def test_a_budget_that_is_lowered_below_what_was_used_refuses_until_its_window_ends(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        of = budget(3, BudgetWindow.HOUR)
        worker = Worker(ledger, MINUTE_END, (of,))
        held = [await worker.begin() for _ in range(3)]
        worker.budgets = (replace(of, amount=2),)
        assert await worker.refused() == 54 * 60.0
        await worker.end(held[0], answered=False)
        assert await worker.refused() == 54 * 60.0
        await worker.end(held[1], answered=False)
        await worker.end(await worker.begin())
        await worker.end(held[2])
        assert await worker.used() == {"2026-12-01T13+00:00": 2}
        worker.now += 54 * 60.0
        await worker.begin()


async def test_a_budget_that_is_deleted_while_it_is_held_leaves_nothing_and_others_are_settled(
    stored: Counting,
) -> None:
    async with opened_budgets(stored) as ledger:
        kinds = (budget(5, BudgetWindow.TOTAL), budget(1, BudgetWindow.TOTAL, is_hard=False, name="soft"))
        other = budget(5, BudgetWindow.TOTAL, name="other")
        worker = Worker(ledger, MINUTE_END, (*kinds, other))
        held = [await worker.begin() for _ in range(2)]
        worker.budgets = (other,)
        for each in kinds:
            await ledger.forget(each.id)
        for record, answered in zip(held, (True, False), strict=True):
            await worker.end(record, answered=answered)
        assert (await worker.used(), await worker.used("other")) == ({}, {"": 1})


def _teller(of: Budget, said: list[str]) -> Callable[..., None]:
    return teller(lambda _: of, said.append)


@pytest.mark.guarantee("B4")
async def test_a_soft_budget_is_told_of_once_in_each_window_by_one_of_two_workers(stored: Counting) -> None:
    soft, said = budget(10, BudgetWindow.MINUTE, is_hard=False), list[str]()
    tell = _teller(soft, said)
    async with opened_budgets(stored, tell) as ledger, opened_budgets(stored, tell) as other:
        workers = [Worker(each, MINUTE_END - 1.0, (soft,)) for each in (ledger, other)]
        held = [await worker.begin() for worker in workers for _ in range(10)]
        for worker in workers:
            worker.now = MINUTE_END
        held += [await worker.begin() for worker in workers for _ in range(10)]
        for number, record in enumerate(held):
            record.status, record.is_answered = 200, True
            workers[number // 10 % 2].stages.settle(record)
        await asyncio.gather(ledger.write(), other.write())
    told = "budget b: used up of {}: 20 requests of 10 requests; it is soft: requests go on"
    assert said == [told.format("2026-12-01T13:05+00:00"), told.format("2026-12-01T13:06+00:00")]
