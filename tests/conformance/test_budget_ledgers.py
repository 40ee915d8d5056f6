"""What every budget ledger does: in memory, in SQLite, in PostgreSQL."""

import asyncio
import math

import pytest

from pointsman.core.budget import MOST, BudgetRefusal, Charge, Hold
from pointsman.store import budget_statements as statements
from pointsman.store.budget_ledger import KEPT_HOURS_SECONDS, KEPT_SECONDS, MOST_UNWRITTEN, Counted
from tests.conformance.budgets import ACCOUNT, DAY_END, any_budgets, charge, opened_budgets, taken, used
from tests.conformance.ledgers import NOON, Counting

TODAY = ("", "2026-09-21")
PLENTY = 1_000_000


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def counting(request: pytest.FixtureRequest) -> Counting | None:
    """Counters of any kind, none counted yet."""
    return None if request.param == "memory" else _stored(request)


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest) -> Counting:
    """The same in a database."""
    return _stored(request)


def _stored(request: pytest.FixtureRequest) -> Counting:
    database: Counting = request.getfixturevalue(f"{request.param}_counting")
    return database


async def test_what_is_reserved_fits_to_the_last_one_and_no_further(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        assert await taken(ledger, charge(9))
        assert await taken(ledger, charge(2)) is None
        assert await taken(ledger, charge(1))
        assert await ledger.reserve(ACCOUNT, [charge(1)], NOON) == BudgetRefusal("day", DAY_END)
        assert await used(ledger) == {TODAY: 10}


async def test_what_is_more_than_all_of_a_budget_is_refused_at_once(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        assert await taken(ledger, charge(11)) is None
        assert await taken(ledger, charge(1, limit=0)) is None
        assert await used(ledger) == {}
        assert await taken(ledger, charge(10))


async def test_subjects_and_windows_are_counted_by_themselves(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        for subject in ("ada", "bob"):
            for window in ("2026-09-20", "2026-09-21"):
                assert await taken(ledger, charge(10, subject=subject, window=window))
                assert await taken(ledger, charge(1, subject=subject, window=window)) is None
        assert len(await used(ledger)) == 4


async def test_all_charges_are_added_or_none(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        assert await taken(ledger, charge(8, budget="month", limit=PLENTY), charge(8))
        assert await taken(ledger, charge(5, budget="month", limit=PLENTY), charge(3)) is None
        assert await taken(ledger, charge(3), charge(5, budget="month", limit=PLENTY)) is None
        assert await taken(ledger, charge(1, budget="another", limit=PLENTY), charge(3)) is None
        assert await used(ledger, "month") == {TODAY: 8}
        assert await used(ledger, "another") == {}
        assert await used(ledger) == {TODAY: 8}


async def test_a_look_tells_what_is_used_in_the_order_asked_for_and_takes_nothing(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        assert list(await ledger.look(ACCOUNT, [])) == []
        assert await ledger.look(ACCOUNT, [charge(3), charge(1, None, "soft")]) == [0, 0]
        assert await used(ledger) == {}
        held = await taken(ledger, charge(4), charge(2, budget="other", subject="ada"))
        assert held is not None
        asked = [charge(1, budget="other", subject="ada"), charge(1, budget="other", subject="bob"), charge(9)]
        assert await ledger.look(ACCOUNT, asked) == [2, 0, 4]
        ledger.settle(held, [1, 0])
        assert await ledger.look(ACCOUNT, asked) == [0, 0, 1]  # also what is not written yet
        assert await used(ledger) == {TODAY: 1}


async def test_a_refusal_names_the_window_that_is_over_last(counting: Counting | None) -> None:
    ever = Charge("ever", "", "", math.inf, 1, 0)
    async with any_budgets(counting) as ledger:
        assert await ledger.reserve(ACCOUNT, [ever, charge(11)], NOON) == BudgetRefusal("ever", math.inf)
        assert await ledger.reserve(ACCOUNT, [charge(11), charge(1, budget="z")], NOON) == BudgetRefusal("day", DAY_END)


async def test_a_limit_that_is_changed_holds_for_what_comes_next(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        assert await taken(ledger, charge(10))
        assert await taken(ledger, charge(1, limit=11))
        assert await taken(ledger, charge(1, limit=5)) is None
        assert await taken(ledger, charge(1, limit=12))


async def test_what_a_request_came_to_replaces_what_was_reserved_once(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        hold = await taken(ledger, charge(8, limit=10), charge(500, budget="month", limit=PLENTY))
        assert hold is not None
        for amounts in ([3, 700], [0, 0], [9, 9]):
            ledger.settle(hold, amounts)
        assert (await used(ledger), await used(ledger, "month")) == ({TODAY: 3}, {TODAY: 700})
        assert await taken(ledger, charge(8)) is None
        assert await taken(ledger, charge(7))


async def test_zeros_give_all_back(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        hold = await taken(ledger, charge(10))
        assert hold is not None
        ledger.settle(hold, [0])
        assert await used(ledger) == {TODAY: 0}
        assert await taken(ledger, charge(10))


async def test_a_soft_budget_is_counted_when_it_is_settled_and_refuses_nothing(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        for _ in range(3):
            hold = await taken(ledger, charge(50, limit=None), charge(1, budget="hard"))
            assert hold is not None
            ledger.settle(hold, [7, 1])
        assert (await used(ledger), await used(ledger, "hard")) == ({TODAY: 21}, {TODAY: 3})


async def test_of_two_hundred_at_once_exactly_ten_are_admitted(counting: Counting | None) -> None:
    async with any_budgets(counting) as ledger:
        together = await asyncio.gather(*[taken(ledger, charge(1)) for _ in range(200)])
        assert sum(each is not None for each in together) == 10
        assert await used(ledger) == {TODAY: 10}


async def test_of_two_hundred_at_once_on_two_budgets_neither_is_counted_for_who_is_refused(
    counting: Counting | None,
) -> None:
    async with any_budgets(counting) as ledger:
        both = (charge(1), charge(3, budget="a", limit=45))
        together = await asyncio.gather(*[taken(ledger, *both) for _ in range(200)])
        assert sum(each is not None for each in together) == 10
        assert (await used(ledger), await used(ledger, "a")) == ({TODAY: 10}, {TODAY: 30})


async def test_what_was_counted_is_counted_after_a_restart(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        hold = await taken(ledger, charge(5))
        assert hold is not None
        assert await taken(ledger, charge(4))
        ledger.settle(hold, [2])  # written at the end
    async with opened_budgets(stored) as ledger:
        assert await used(ledger) == {TODAY: 6}


async def test_a_request_that_comes_right_after_another_is_not_refused_for_what_that_one_has_reserved(
    stored: Counting,
) -> None:
    async with opened_budgets(stored) as ledger, opened_budgets(stored) as other:
        watching = asyncio.get_running_loop().create_task(other.watch(lambda: NOON))
        for each in (ledger, other, ledger, other, ledger):
            hold = await taken(each, charge(9, limit=14))
            assert hold is not None
            each.settle(hold, [1])
            if each is ledger:
                await ledger.write()
        watching.cancel()


async def test_a_crowd_without_room_is_refused_together_and_let_in_when_there_is_some(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        hold = await taken(ledger, charge(10))
        assert hold is not None
        for _ in range(2):
            refused = await asyncio.gather(*[taken(ledger, charge(amount)) for amount in (1, 2) * 50])
            assert set(refused) == {None}
        ledger.settle(hold, [4])
        crowd = await asyncio.gather(*[taken(ledger, charge(3)) for _ in range(50)])
        assert sum(each is not None for each in crowd) == 2
        assert await used(ledger) == {TODAY: 10}


async def test_what_a_request_came_to_is_written_soon_and_seen_by_another(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger, opened_budgets(stored) as other:
        watching = asyncio.get_running_loop().create_task(ledger.watch(lambda: NOON))
        hold = await taken(ledger, charge(10))
        assert hold is not None
        assert await taken(other, charge(1)) is None
        ledger.settle(hold, [9])
        async with asyncio.timeout(30):
            while await taken(other, charge(1)) is None:  # another process has nothing to wait for
                await asyncio.sleep(0.01)
        watching.cancel()


async def test_many_counters_of_many_accounts_are_written_together(stored: Counting) -> None:
    count = statements.COUNTERS_AT_ONCE + 1
    async with opened_budgets(stored) as ledger:
        for account in ("default", "team"):
            for number in range(count):
                hold = await ledger.reserve(account, [charge(9, subject=f"{account}-{number}")], NOON)
                assert isinstance(hold, Hold)
                ledger.settle(hold, [number % 9])
        for account in ("default", "team"):
            found = await used(ledger, account=account)
            assert found == {(f"{account}-{number}", "2026-09-21"): number % 9 for number in range(count)}


async def test_a_step_of_a_soft_budget_is_told_to_one_of_all(stored: Counting) -> None:
    steps: list[Counted] = []
    async with opened_budgets(stored, steps.append) as ledger, opened_budgets(stored, steps.append) as other:
        for each, amount in ((ledger, 3), (other, 4), (ledger, 5)):
            hold = await taken(each, charge(1, limit=None), charge(1, budget="hard"))
            assert hold is not None
            each.settle(hold, [amount, 1])
            await each.write()
    assert [(step.key.budget, step.before, step.used) for step in steps] == [
        ("day", 0, 3),
        ("day", 3, 7),
        ("day", 7, 12),
    ]


async def test_windows_that_are_long_over_are_deleted_and_others_stay(stored: Counting) -> None:
    async def with_counters(now: float) -> set[str]:
        async with opened_budgets(stored) as ledger:
            await ledger.prune(now)
            return {each.key.window for each in await ledger.used(ACCOUNT, 0.0)}

    kinds = {"2026-09-21": DAY_END, "2026-09-21T23+00:00": DAY_END, "": math.inf}
    async with opened_budgets(stored) as ledger:
        for window, end in kinds.items():
            assert await taken(ledger, Charge("b", "", window, end, 1, 10))
    assert await with_counters(DAY_END + KEPT_HOURS_SECONDS) == set(kinds)
    assert await with_counters(DAY_END + KEPT_HOURS_SECONDS + 0.1) == {"2026-09-21", ""}
    assert await with_counters(DAY_END + KEPT_SECONDS) == {"2026-09-21", ""}
    assert await with_counters(DAY_END + KEPT_SECONDS + 0.1) == {""}


async def test_counters_of_a_budget_can_be_forgotten(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        assert await taken(ledger, charge(3, subject="a"), charge(2, budget="other"))
        await ledger.forget("day")
        assert (await used(ledger), await used(ledger, "other")) == ({}, {TODAY: 2})


async def test_what_is_given_back_to_a_counter_that_is_gone_makes_none(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        hold = await taken(ledger, charge(3))
        assert hold is not None
        await ledger.forget("day")
        ledger.settle(hold, [1])
        assert await used(ledger) == {}


async def test_a_counter_that_is_full_stays_where_it_is(stored: Counting) -> None:
    async with opened_budgets(stored) as ledger:
        for _ in range(12):
            hold = await taken(ledger, charge(1, limit=None))
            assert hold is not None
            ledger.settle(hold, [10**30])
            await ledger.write()
        assert (await used(ledger))[TODAY] > 4 * MOST
        assert await taken(ledger, charge(1, limit=MOST)) is None
        assert await taken(ledger, charge(10**30, limit=MOST, window="new")) is None
        assert await taken(ledger, charge(MOST, limit=MOST, window="new"))


@pytest.mark.parametrize("more", [-1, 0])
async def test_of_more_counters_than_may_wait_what_is_given_back_stays_counted_and_what_was_used_is_never_forgotten(
    sqlite_counting: Counting, more: int
) -> None:
    async with opened_budgets(sqlite_counting) as ledger:
        given_back = await taken(ledger, charge(2, budget="back"))
        assert given_back is not None
        waiting = [charge(1, None, budget=f"soft-{number}") for number in range(MOST_UNWRITTEN + more)]
        ledger.settle(Hold(ACCOUNT, waiting), [1] * len(waiting))
        ledger.settle(given_back, [1])
        ledger.settle(Hold(ACCOUNT, [charge(3, None, budget="used")]), [3])
        assert await used(ledger, "back") == {TODAY: 2 if more == 0 else 1}
        assert await used(ledger, "used") == {TODAY: 3}
