"""What a chain tries for one request, in order, and what it does not, each with its reason.

A plan goes by what is known when it is made; a place of a quota is only taken by the ledger, at the time of an attempt.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from pointsman.core.attempts import Chain, Member, Plan, Skipped
from pointsman.core.quota import Counters
from pointsman.core.quota_window import MINUTE_SECONDS, minute_of, next_midnight
from pointsman.core.time_zones import zone_named
from pointsman.routing.strategies import StrategyState, strategy_named


class Planned(NamedTuple):
    """A plan, and what its strategy will remember once it is carried out."""

    plan: Plan
    state: StrategyState
    """To be kept for the chain's next request; left alone when a plan is only explained."""


def plan(
    chain: Chain, protocol: str, counters: Callable[[Member], Counters], now: float, state: StrategyState, rng: Random
) -> Planned:
    """Leave out who does not speak the dialect or has no room, ask the strategy once, put the fallback last.

    `counters` is asked at most once for each provider and is not asked for those that do not speak the dialect. The
    fallback keeps to its own quota, if it has one.
    """
    known: dict[str, Counters] = {}
    skipped: list[Skipped] = []
    usable: list[Member] = []
    fallback = chain.fallback
    for member in chain.members if fallback is None else (*chain.members, fallback):
        provider = member.provider
        if protocol not in member.candidate.protocols:
            skipped.append(Skipped(provider, "dialect"))
            continue
        used = known.get(provider)
        if used is None:
            used = known[provider] = counters(member)
        reason = exhausted(member, used, now)
        if reason is None:
            usable.append(member)
        else:
            skipped.append(reason)
    last = (usable.pop(),) if fallback is not None and usable and usable[-1] is fallback else ()
    ordering = strategy_named(chain.strategy)[0].order(usable, known, state, rng)
    if len(ordering.members) < len(usable):
        part = set(map(id, ordering.members))
        skipped += [Skipped(each.provider, "no_weight") for each in usable if id(each) not in part]
    return Planned(Plan(ordering.members + last, tuple(skipped)), ordering.state)


def exhausted(member: Member, used: Counters, now: float) -> Skipped | None:
    """Why a member has no room, by the reason that holds longest; None when it has some."""
    quota = member.quota
    until, reason = used.exhausted_until, "exhausted"
    if 0 < quota.daily_requests <= used.daily:
        day_ends = next_midnight(zone_named(quota.reset_timezone), now)
        if day_ends >= until:
            until, reason = day_ends, "quota_daily"
    if 0 < quota.requests_per_minute <= used.minute:
        minute_ends = float((minute_of(now) + 1) * MINUTE_SECONDS)
        if minute_ends > until:
            until, reason = minute_ends, "quota_minute"
    return Skipped(member.provider, reason, until) if until > now else None


def earliest_recovery(skipped: Iterable[Skipped], now: float) -> float | None:
    """When the first of those not tried, or tried in vain, may be tried again; None when nobody knows.

    Takes what a plan skipped and what the attempts have added. One that may be tried again at once, as after a server's
    error, is told with that time. For the Retry-After of a 503.
    """
    return min((each.until for each in skipped if each.until > now), default=None)
