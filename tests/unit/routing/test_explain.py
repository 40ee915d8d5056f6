"""Explanations: the plan that would be carried out, and what upstreams would get, told from the same rules."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.explanation import ExplainedCandidate, KeyFact, KeyState
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.profiles import POINTSMAN, known_provider_types
from pointsman.core.quota import Counters, Quota
from pointsman.core.secret import Secret
from pointsman.routing.chain_plan import plan
from pointsman.routing.explain import Asked, Circumstances, explain_chain, quota_fact, rewrite_of
from pointsman.routing.hops import mark_of
from pointsman.routing.rewrite import RequestTemplate
from pointsman.routing.strategies import NO_STATE, STRATEGY_NAMES, StrategyState, least_used, share_used
from pointsman.wire.request import FieldValues
from tests.support.canary import KEY
from tests.unit.routing.chains import CHAT, MIDNIGHT, NOW, chain, counted, member

ASKED = Asked("fast", "/v1/chat/completions?a=b", b'{"model":"fast"}')
READABLE = KeyFact(KeyState.READABLE, "record")
MISSING = KeyFact(KeyState.MISSING, "file", "no such file")


def explained(
    made: Chain,
    used: dict[str, Counters] | None = None,
    *,
    keyless: tuple[str, ...] = (),
    state: StrategyState = NO_STATE,
    asked: Asked = ASKED,
    seed: int = 1,
) -> tuple[ExplainedCandidate, ...]:
    around = Circumstances(
        counters=counted(used),
        key_of=lambda each: MISSING if each.provider in keyless else READABLE,
        now=NOW,
        state=state,
        rng=Random(seed),
        limits=DEFAULT_LIMITS,
    )
    return explain_chain(made, CHAT, asked, around)[0]


def names(candidates: tuple[ExplainedCandidate, ...]) -> list[tuple[str, int, str]]:
    return [(each.provider, each.place, each.skip_reason) for each in candidates]


members = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=6)


@given(members, st.sampled_from(STRATEGY_NAMES), st.integers(0, 99), st.booleans())
def test_an_explanation_is_the_plan_that_the_same_chance_gives(
    drawn: list[tuple[int, int]], strategy: str, seed: int, has_fallback: bool
) -> None:
    listed = [member(f"p{number}", daily) for number, (daily, _) in enumerate(drawn)]
    used = {f"p{number}": Counters(count) for number, (_, count) in enumerate(drawn)}
    made = chain(*listed, strategy=strategy, fallback=member("last") if has_fallback else None)
    planned = plan(made, CHAT, counted(used), NOW, NO_STATE, Random(seed)).plan
    told = explained(made, used, seed=seed)
    assert [each.provider for each in told if each.place] == [each.provider for each in planned.attempts]
    assert {(each.provider, each.skip_reason, each.skip_until) for each in told if not each.place} == {
        (each.provider, each.reason, each.until) for each in planned.skipped
    }
    assert len(told) == len(listed) + has_fallback


def test_who_has_no_room_or_no_key_is_told_with_the_reason() -> None:
    made = chain(member("full", 2), member("odd", protocols=("anthropic_messages",)), member("keyless"), member("ok"))
    told = explained(made, {"full": Counters(2)}, keyless=("keyless",))
    assert names(told) == [
        ("ok", 1, ""),
        ("full", 0, "quota_daily"),
        ("odd", 0, "dialect"),
        ("keyless", 0, "auth_error"),
    ]
    assert told[1].skip_until == MIDNIGHT
    assert told[3].key == MISSING


def test_only_equals_of_least_used_are_said_to_be_drawn() -> None:
    made = chain(
        member("a", 10),
        member("b", 10),
        member("c", 20),
        member("d"),
        member("e"),
        strategy="least_used",
        fallback=member("last"),
    )
    used = {"a": Counters(1), "b": Counters(2), "c": Counters(2)}
    assert {each.provider for each in explained(made, used) if each.by_chance} == {"a", "c", "d", "e"}
    orders = {tuple(each.provider for each in explained(made, used, seed=seed)) for seed in range(30)}
    assert {order[2] for order in orders} == {"b"}
    assert len({order[0] for order in orders}) == 2
    assert not [each for each in explained(replace(made, strategy="in_order"), used) if each.by_chance]


def test_the_share_that_is_told_is_the_one_that_least_used_ranks_by() -> None:
    listed = [member(f"p{number}", daily) for number, daily in enumerate((7, 3, 0, 11))]
    used = {each.provider: Counters(number) for number, each in enumerate(listed)}
    ranked = least_used(listed, used, NO_STATE, Random(1)).members
    assert list(ranked) == sorted(listed, key=lambda each: share_used(each, used[each.provider]))


def test_what_a_strategy_remembers_is_read_and_stays() -> None:
    made = chain(member("a", 3), member("b", 1), strategy="weighted")
    state = NO_STATE
    for _ in range(8):
        first = explained(made, state=state)
        assert first == explained(made, state=state)
        planned = plan(made, CHAT, counted(), NOW, state, Random(1))
        assert first[0].provider == planned.plan.attempts[0].provider
        state = planned.state
    assert state.lags


def test_a_chain_that_forwards_the_model_says_so() -> None:
    made = replace(chain(member("a", model="")), forwards_model=True)
    (told,) = explained(made)
    assert told.rewrite is not None
    assert (told.rewrite.model_before, told.rewrite.model_after, told.rewrite.body) == ("fast", "fast", "same")


def test_a_chain_that_forwards_no_model_asks_those_that_have_one() -> None:
    made = replace(chain(member("a", model=""), member("b"), fallback=member("last", model="")), forwards_model=True)
    told = explained(made, asked=replace(ASKED, model=None, body=b"{}"))
    assert names(told) == [("b", 1, ""), ("a", 0, "no_model"), ("last", 0, "no_model")]


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        (ASKED, "replaced"),
        (replace(ASKED, model="m"), "same"),
        (replace(ASKED, model=None, body=b"{}"), "inserted"),
        (replace(ASKED, model=None, body=b"text"), "unchanged"),
        (replace(ASKED, model=None, body=None), "pinned"),
    ],
)
def test_what_happens_to_a_body_is_one_word(asked: Asked, change: str) -> None:
    assert rewrite_of(member("a").candidate, asked).body == change


KINDS = (*known_provider_types(), POINTSMAN, "unheard-of")
CLIENT = ("Accept", "Authorization", "Cookie", "anthropic-beta", "openai-organization", "X-Model-Id", "x-odd")


@pytest.mark.parametrize("by_gateway", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_headers_are_told_as_they_are_rewritten(kind: str, by_gateway: bool) -> None:
    candidate = Candidate("fast", parse_endpoint("http://a.example/v1"), "m", (CHAT,), kind, Secret(KEY))
    rewrite = rewrite_of(candidate, replace(ASKED, headers=CLIENT, by_gateway=by_gateway))
    everything = {*rewrite.headers_kept, *(name.lower() for name in CLIENT)}
    values = FieldValues((name.encode(), b"client's") for name in sorted(everything))
    template = RequestTemplate(candidate, KEY, "a.example", mark_of(bytes(8)) if by_gateway else b"")
    (sent,) = template.encode("POST", ASKED.target, values, (b"{}",))
    lines = bytes(sent).partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert lines[0] == f"POST {rewrite.path} HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in lines[1:])
    theirs = {name for name, value in fields.items() if value == "client's"}
    assert theirs == set(rewrite.headers_kept)
    assert set(fields) - theirs == set(rewrite.headers_set)
    assert set(rewrite.headers_dropped) == {name.lower() for name in CLIENT} - theirs
    (bare,) = template.encode("POST", ASKED.target, FieldValues(), (b"{}",))
    added = {line.partition(b":")[0].decode() for line in bytes(bare).split(b"\r\n")[1:-2]} - set(rewrite.headers_set)
    assert added == set(rewrite.headers_default)


def test_no_explanation_holds_a_key() -> None:
    keyed = member("a")
    keyed = Member("a", replace(keyed.candidate, api_key=Secret(KEY)))
    assert KEY not in repr(explained(chain(keyed)))


def test_a_quota_is_told_with_what_is_left_and_when_it_is_renewed() -> None:
    fact = quota_fact(Quota(10, 4), Counters(6, 1), NOW)
    assert (fact.daily_left, fact.minute_left, fact.exhausted_until) == (4, 3, 0)
    assert (fact.day_resets_at, fact.minute_resets_at) == (MIDNIGHT, NOW + 60)
    assert fact.runs_dry_at == NOW + 8 * 3600 * 4 / 6
    none = quota_fact(Quota(), Counters(6, 1), NOW)
    assert (none.daily_left, none.minute_left, none.runs_dry_at) == (None, None, None)
    over = quota_fact(Quota(5), Counters(6, 0, NOW + 5), NOW)
    assert (over.daily_left, over.exhausted_until, over.runs_dry_at) == (0, NOW + 5, NOW)
