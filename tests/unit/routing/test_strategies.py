"""The order in which the providers of a chain are tried."""

import time
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.attempts import Member
from pointsman.core.quota import Counters
from pointsman.routing.strategies import (
    NO_STATE,
    STRATEGY_NAMES,
    StrategyState,
    in_order,
    least_used,
    strategy_named,
    weighted,
)
from tests.unit.routing.chains import chance, member

LIMITS = st.lists(st.integers(0, 20_000), max_size=8)


def members(limits: Sequence[int]) -> list[Member]:
    return [member(f"p{position}", limit) for position, limit in enumerate(limits)]


def used(all_of: Sequence[Member], *daily: int) -> dict[str, Counters]:
    return {each.provider: Counters(daily=count) for each, count in zip(all_of, daily, strict=True)}


def unused(all_of: Sequence[Member]) -> dict[str, Counters]:
    return used(all_of, *([0] * len(all_of)))


def names(ordered: Sequence[Member]) -> list[str]:
    return [each.provider for each in ordered]


def picks(all_of: Sequence[Member], count: int, state: StrategyState = NO_STATE) -> tuple[list[str], StrategyState]:
    chosen = []
    for _ in range(count):
        ordering = weighted(all_of, {}, state, chance())
        chosen.append(ordering.members[0].provider)
        state = ordering.state
    return chosen, state


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "in_order"),
        ("  ", "in_order"),
        ("in_order", "in_order"),
        ("ChainOfResponsibility", "in_order"),
        ("WeightedRoundRobin", "weighted"),
        ("weighted", "weighted"),
        ("LeastUsed", "least_used"),
        ("leastused", "least_used"),
        (" LEAST_USED ", "least_used"),
        ("weighted-round-robin", "weighted"),
    ],
)
def test_a_strategy_has_our_name_and_inferrouters_in_any_case(text: str, name: str) -> None:
    strategy, known = strategy_named(text)
    assert (strategy.name, known) == (name, True)


@pytest.mark.parametrize("text", ["random", "in order", "weighted2", "_", "least__usedd"])
def test_an_unknown_name_stands_for_the_operators_order_and_is_told(text: str) -> None:
    strategy, known = strategy_named(text)
    assert (strategy.order, known) == (in_order, False)


# All


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@given(LIMITS, st.data())
def test_an_order_is_a_permutation_of_those_that_take_part(name: str, limits: list[int], data: st.DataObject) -> None:
    all_of = members(limits)
    counters = used(all_of, *(data.draw(st.integers(0, 30_000)) for _ in all_of))
    strategy, _ = strategy_named(name)
    ordered = strategy.order(all_of, counters, NO_STATE, chance()).members
    part = [each for each in all_of if each.quota.daily_requests or name != "weighted"]
    assert sorted(names(ordered)) == sorted(names(part))


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@given(LIMITS, st.integers(0, 99))
def test_the_same_chance_and_state_give_the_same_order_and_neither_input_changes(
    name: str, limits: list[int], seed: int
) -> None:
    all_of = members(limits)
    state = StrategyState({("p0", "m"): 0.5, ("gone", "m"): -0.25})
    strategy, _ = strategy_named(name)
    first = strategy.order(all_of, unused(all_of), state, Random(seed))
    assert first == strategy.order(all_of, unused(all_of), state, Random(seed))
    assert state == StrategyState({("p0", "m"): 0.5, ("gone", "m"): -0.25})
    assert all_of == members(limits)


# in_order


def test_in_order_is_what_the_operator_wrote() -> None:
    all_of = members([3, 0, 9, 1])
    assert in_order(all_of, {}, NO_STATE, chance()).members == tuple(all_of)


# weighted


def test_zero_daily_limit_is_excluded_and_only_positive_limits_are_returned() -> None:
    assert names(weighted(members([0, 5, 0]), {}, NO_STATE, chance()).members) == ["p1"]
    assert weighted(members([0, 0]), {}, NO_STATE, chance()).members == ()


def test_weighted_turns_are_smooth() -> None:
    assert picks(members([5, 1, 1]), 7)[0] == ["p0", "p0", "p1", "p0", "p2", "p0", "p0"]


def test_a_higher_weight_comes_first_more_often_and_the_rest_by_what_they_are_owed() -> None:
    all_of = members([100, 300, 200])
    assert names(weighted(all_of, {}, NO_STATE, chance()).members) == ["p1", "p2", "p0"]
    assert Counter(picks(all_of, 600)[0]) == {"p0": 100, "p1": 300, "p2": 200}


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=12), st.integers(0, 700))
def test_shares_are_within_two_percent_over_any_thousand_requests(limits: list[int], before: int) -> None:
    all_of = members(limits)
    _, state = picks(all_of, before)
    got = Counter(picks(all_of, 1000, state)[0])
    for each in all_of:
        assert abs(got[each.provider] - 1000 * each.quota.daily_requests / sum(limits)) <= 20


def test_when_the_largest_goes_the_others_do_not_starve_and_keep_their_shares() -> None:
    big, one, other = members([14_400, 10, 10])
    for before in (1, 700, 721, 1441):
        _, state = picks([big, one, other], before)
        got = Counter(picks([one, other], 1000, state)[0])
        assert abs(got["p1"] - 500) <= 2


def test_members_that_come_and_go_all_the_time_keep_their_shares() -> None:
    everyone, state = members([14_400, 1_500, 600]), NO_STATE
    got: Counter[str] = Counter()
    owed = dict.fromkeys(names(everyone), 0.0)
    for turn in range(3000):
        present = everyone if turn % 3 else everyone[1:]
        total = sum(each.quota.daily_requests for each in present)
        for each in present:
            owed[each.provider] += each.quota.daily_requests / total
        chosen, state = picks(present, 1, state)
        got[chosen[0]] += 1
    assert all(abs(got[name] - owed[name]) <= 3 for name in owed)


BURST = 3.0
"""Requests that a member may be ahead of its share, or behind, however short the window; of six members, 2 are seen."""


@settings(max_examples=40)
@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=6), st.integers(0, 300), st.integers(1, 500))
def test_a_member_that_comes_back_gets_no_burst_and_makes_up_for_nothing(
    limits: list[int], before: int, away: int
) -> None:
    all_of = members(limits)
    _, state = picks(all_of, before)
    _, state = picks(all_of[1:], away, state)
    share, count = limits[0] / sum(limits), 0
    for turn, chosen in enumerate(picks(all_of, 200, state)[0], 1):
        count += chosen == "p0"
        assert abs(count - share * turn) <= BURST


@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=6), st.integers(0, 300), st.integers(1, 300))
def test_shares_hold_in_every_window_to_a_request_or_two(limits: list[int], before: int, window: int) -> None:
    all_of = members(limits)
    _, state = picks(all_of, before)
    got = Counter(picks(all_of, window, state)[0])
    for each in all_of:
        assert abs(got[each.provider] - window * each.quota.daily_requests / sum(limits)) <= BURST


def test_a_changed_limit_counts_from_the_next_request_on() -> None:
    _, state = picks(members([14_400, 1]), 100)
    got = Counter(picks(members([1, 1]), 1000, state)[0])
    assert abs(got["p1"] - 500) <= 2


def test_models_of_one_provider_share_its_weight() -> None:
    both = [member("p0", 100, model="big"), member("p0", 100, model="small"), member("p1", 100)]
    got = Counter(picks(both, 1000)[0])
    assert abs(got["p0"] - 500) <= 2


# least_used


def test_the_lowest_ratio_comes_first_not_the_lowest_count() -> None:
    all_of = members([1000, 2000, 100])
    ordered = least_used(all_of, used(all_of, 500, 700, 51), NO_STATE, chance()).members
    assert names(ordered) == ["p1", "p0", "p2"]


@pytest.mark.parametrize(("count", "first"), [(499, "p0"), (501, "p1")])
def test_one_request_more_or_less_decides(count: int, first: str) -> None:
    all_of = members([1000, 2000])
    assert least_used(all_of, used(all_of, count, 1000), NO_STATE, chance()).members[0].provider == first


def test_zero_daily_limit_comes_after_every_provider_that_has_a_ratio() -> None:
    all_of = members([0, 10, 0, 10])
    for seed in range(50):
        ordered = names(least_used(all_of, used(all_of, 0, 99, 0, 9), NO_STATE, chance(seed)).members)
        assert ordered[:2] == ["p3", "p1"]
        assert set(ordered[2:]) == {"p0", "p2"}


@pytest.mark.parametrize("limits", [(10, 20, 30), (0, 0, 0)])
def test_equal_ratios_are_ordered_by_chance_and_every_order_occurs(limits: tuple[int, ...]) -> None:
    all_of, rng = members(limits), chance()
    seen = Counter(tuple(names(least_used(all_of, unused(all_of), NO_STATE, rng).members)) for _ in range(1200))
    assert len(seen) == 6
    assert all(130 <= times <= 270 for times in seen.values())


def test_least_used_over_fifty_providers_costs_a_quarter_of_sorting_two_thousand_numbers() -> None:
    all_of = members(range(1, 51))
    counters, rng = used(all_of, *range(50)), chance()
    numbers = [rng.random() for _ in range(2000)]

    def cost(work: object) -> float:
        assert callable(work)
        best = float("inf")
        for _ in range(7):
            started = time.process_time()
            for _ in range(100):
                work()
            best = min(best, time.process_time() - started)
        return best

    ours = cost(lambda: least_used(all_of, counters, NO_STATE, rng))
    # The aim is 20 µs where sorting 2,000 random numbers takes 80 µs; their ratio is the same on a slower machine.
    assert ours < cost(lambda: sorted(numbers)) / 4
