"""What a chain tries for one request, and what it does not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.attempts import Chain, Member, Plan, Skipped
from pointsman.core.profiles import LOCAL_PROTOCOLS
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.quota import Counters
from pointsman.routing.chain_plan import earliest_recovery, exhausted, plan
from pointsman.routing.strategies import NO_STATE, STRATEGY_NAMES, StrategyState
from tests.unit.routing.chains import CHAT, MIDNIGHT, NOW, chain, chance, counted, member

LOCAL = member("local", protocols=LOCAL_PROTOCOLS)
CLAUDE = member("claude", protocols=(P.MESSAGES, P.MODEL_DISCOVERY))
MINUTE_ENDS = NOW + 60  # NOW is a whole minute


def planned(of: Chain, used: Mapping[str, Counters] | None = None, protocol: str = CHAT, seed: int = 1) -> Plan:
    return plan(of, protocol, counted(used), NOW, NO_STATE, chance(seed)).plan


def names(attempts: Sequence[Member]) -> list[str]:
    return [each.provider for each in attempts]


def test_a_plan_is_the_strategys_order_with_the_fallback_last() -> None:
    found = planned(chain(member("a"), member("b"), fallback=LOCAL))
    assert (names(found.attempts), found.skipped) == (["a", "b", "local"], ())


def test_members_that_do_not_speak_the_dialect_are_left_out_and_never_counted() -> None:
    asked: list[str] = []

    def counters(each: Member) -> Counters:
        asked.append(each.provider)
        return Counters()

    found = plan(chain(CLAUDE, member("a"), fallback=LOCAL), CHAT, counters, NOW, NO_STATE, chance()).plan
    assert names(found.attempts) == ["a", "local"]
    assert found.skipped == (Skipped("claude", "dialect"),)
    assert asked == ["a", "local"]


@pytest.mark.parametrize(
    ("protocol", "attempts"),
    [
        (P.CHAT_COMPLETIONS, ["a", "local"]),
        (P.COMPLETIONS, ["a", "local"]),
        (P.RESPONSES, ["a", "local"]),
        (P.MESSAGES, ["claude", "local"]),
        (P.EMBEDDINGS, ["a"]),
        ("aws_bedrock_invoke", []),
    ],
)
def test_the_fallback_serves_only_the_dialects_that_it_speaks(protocol: str, attempts: list[str]) -> None:
    found = planned(chain(member("a"), CLAUDE, fallback=LOCAL), protocol=protocol)
    assert names(found.attempts) == attempts
    assert {each.reason for each in found.skipped} == {"dialect"}
    assert len(found.skipped) == 3 - len(attempts)


def test_a_chain_without_a_fallback_has_none() -> None:
    assert names(planned(chain(member("a"))).attempts) == ["a"]
    assert planned(chain(member("a", 1)), {"a": Counters(daily=1)}).attempts == ()


def test_counters_of_a_provider_with_several_models_are_read_once() -> None:
    asked: list[str] = []

    def counters(each: Member) -> Counters:
        asked.append(each.provider)
        return Counters(daily=1)

    of = chain(member("a", 1, model="big"), member("a", 1, model="small"))
    found = plan(of, CHAT, counters, NOW, NO_STATE, chance()).plan
    assert (asked, found.attempts, len(found.skipped)) == (["a"], (), 2)


# Exhaustion

FULL = member("a", 10, 3)


@pytest.mark.parametrize(
    ("used", "skipped"),
    [
        (Counters(), None),
        (Counters(daily=9, minute=2), None),
        (Counters(daily=10), ("quota_daily", MIDNIGHT)),
        (Counters(daily=11), ("quota_daily", MIDNIGHT)),
        (Counters(minute=3), ("quota_minute", MINUTE_ENDS)),
        (Counters(minute=4), ("quota_minute", MINUTE_ENDS)),
        (Counters(daily=10, minute=3), ("quota_daily", MIDNIGHT)),
        (Counters(exhausted_until=NOW - 1), None),
        (Counters(exhausted_until=NOW), None),
        (Counters(exhausted_until=NOW + 0.001), ("exhausted", NOW + 0.001)),
        (Counters(minute=3, exhausted_until=NOW + 59), ("quota_minute", MINUTE_ENDS)),
        (Counters(minute=3, exhausted_until=NOW + 61), ("exhausted", NOW + 61)),
        (Counters(daily=10, exhausted_until=MIDNIGHT), ("quota_daily", MIDNIGHT)),
        (Counters(daily=10, exhausted_until=MIDNIGHT + 1), ("exhausted", MIDNIGHT + 1)),
        (Counters(daily=10, exhausted_until=NOW - 99), ("quota_daily", MIDNIGHT)),
    ],
)
def test_a_member_without_room_is_skipped_by_the_reason_that_holds_longest(
    used: Counters, skipped: tuple[str, float] | None
) -> None:
    expected = None if skipped is None else Skipped("a", *skipped)
    assert exhausted(FULL, used, NOW) == expected


@pytest.mark.parametrize("used", [Counters(daily=10**9, minute=10**9), Counters()])
def test_a_limit_of_zero_is_none(used: Counters) -> None:
    assert exhausted(member("a"), used, NOW) is None


def test_is_exhausted_after_a_429_whatever_the_daily_count_says() -> None:
    assert exhausted(member("a"), Counters(daily=0, exhausted_until=NOW + 5), NOW) == Skipped("a", "exhausted", NOW + 5)


@pytest.mark.parametrize(("now", "ends"), [(NOW + 59.999, NOW + 60), (NOW + 60, NOW + 120), (NOW - 0.001, NOW)])
def test_a_minute_ends_with_the_clocks(now: float, ends: float) -> None:
    assert exhausted(FULL, Counters(minute=3), now) == Skipped("a", "quota_minute", ends)


def test_a_day_ends_in_the_providers_time_zone() -> None:
    tokyo = member("a", 10, zone="Asia/Tokyo")
    assert exhausted(tokyo, Counters(daily=10), NOW) == Skipped("a", "quota_daily", NOW + 7 * 3600)


def test_the_fallback_keeps_to_a_quota_of_its_own() -> None:
    of = chain(member("a"), fallback=member("spare", 1))
    assert names(planned(of, {"spare": Counters(daily=0)}).attempts) == ["a", "spare"]
    found = planned(of, {"spare": Counters(daily=1)})
    assert (names(found.attempts), found.skipped) == (["a"], (Skipped("spare", "quota_daily", MIDNIGHT),))


# Strategies in a plan


def test_all_weights_zero_leave_the_fallback_alone() -> None:
    found = planned(chain(member("a"), member("b"), strategy="weighted", fallback=LOCAL))
    assert names(found.attempts) == ["local"]
    assert found.skipped == (Skipped("a", "no_weight"), Skipped("b", "no_weight"))


def test_a_weighted_plan_moves_on_with_its_state_and_an_explained_one_does_not() -> None:
    of = chain(member("a", 2), member("b", 1), strategy="WeightedRoundRobin")
    state, firsts = NO_STATE, []
    for _ in range(6):
        plan(of, CHAT, counted(), NOW, state, chance())
        found, state = plan(of, CHAT, counted(), NOW, state, chance())
        firsts.append(found.attempts[0].provider)
    assert Counter(firsts) == {"a": 4, "b": 2}


def test_an_unknown_strategy_is_the_operators_order() -> None:
    assert names(planned(chain(member("b", 9), member("a"), strategy="no such")).attempts) == ["b", "a"]


class CountingChance(Random):
    """Counts how often it is asked."""

    asked = 0

    def random(self) -> float:
        self.asked += 1
        return super().random()


def test_a_strategy_is_asked_once_and_sees_neither_the_fallback_nor_who_has_no_room() -> None:
    # least_used asks once for each member that it sees.
    rng = CountingChance(1)
    of = chain(member("a", 5), member("b", 5), CLAUDE, member("c"), strategy="least_used", fallback=LOCAL)
    plan(of, CHAT, counted({"b": Counters(daily=5)}), NOW, NO_STATE, rng)
    assert rng.asked == 2
    weighted = plan(
        chain(member("a", 5), member("b", 5), strategy="weighted", fallback=member("spare", 5)),
        CHAT,
        counted({"b": Counters(daily=5)}),
        NOW,
        NO_STATE,
        rng,
    )
    assert weighted.state == StrategyState({("a", "m"): 0.0})


MEMBERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.integers(0, 4), st.integers(0, 4), st.booleans()),
    max_size=7,
)


@given(MEMBERS, st.sampled_from(STRATEGY_NAMES), st.booleans(), st.integers(0, 9))
def test_a_plan_tries_everyone_who_can_nobody_who_cannot_and_accounts_for_all(
    drawn: list[tuple[int, int, bool, int, int, bool]], strategy: str, with_fallback: bool, seed: int
) -> None:
    everyone, used, able = [], {}, set()
    for position, (daily, minute, speaks, day_used, minute_used, told) in enumerate(drawn):
        name = f"p{position}"
        protocols = (CHAT,) if speaks else (P.MESSAGES,)
        everyone.append(member(name, daily, minute, protocols=cast("tuple[str, ...]", protocols)))
        used[name] = Counters(day_used, minute_used, NOW + 9 if told else 0.0)
        room = not told and (daily == 0 or day_used < daily) and (minute == 0 or minute_used < minute)
        if speaks and room and (daily > 0 or strategy != "weighted"):
            able.add(name)
    of = chain(*everyone, strategy=strategy, fallback=LOCAL if with_fallback else None)
    found = planned(of, used, seed=seed)
    tried = names(found.attempts)
    if with_fallback:
        assert tried.pop() == "local"
    assert set(tried) == able
    assert len(tried) == len(able)
    assert sorted([*tried, *(each.provider for each in found.skipped)]) == sorted(names(everyone))
    assert found == planned(of, used, seed=seed)


# Recovery of a pool


def test_a_pool_recovers_with_the_first_of_its_members() -> None:
    skipped = [
        Skipped("a", "quota_daily", MIDNIGHT),
        Skipped("b", "quota_minute", MINUTE_ENDS),
        Skipped("c", "dialect"),
        Skipped("d", "exhausted", NOW),
    ]
    assert earliest_recovery(skipped, NOW) == MINUTE_ENDS
    assert earliest_recovery([*skipped, Skipped("e", "server_error", NOW + 1)], NOW) == NOW + 1
    assert earliest_recovery(skipped[2:], NOW) is None
    assert earliest_recovery([], NOW) is None
