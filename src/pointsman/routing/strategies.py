"""In which order the providers of a chain are tried.

A strategy sees members that may be used, answers once per request, and never learns what came of it. It never sees the
fallback. What it remembers between requests is a value that goes in and comes out; chance is an argument.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import NamedTuple

from pointsman.core.attempts import Member
from pointsman.core.quota import Counters

MemberKey = tuple[str, str]
"""Provider and model: a chain may name one provider with several models."""


@dataclass(frozen=True, slots=True)
class StrategyState:
    """What a strategy remembers of one chain. Kept by whoever plans, per chain and process."""

    lags: Mapping[MemberKey, float] = field(default_factory=dict)
    """Of `weighted`: how many requests each member is behind its share; negative when it is ahead."""


NO_STATE = StrategyState()


class Ordering(NamedTuple):
    """A strategy's answer."""

    members: tuple[Member, ...]
    """Those that take part, the first to be tried first."""
    state: StrategyState


Order = Callable[[Sequence[Member], Mapping[str, Counters], StrategyState, Random], Ordering]
"""From members, counters by provider, state and chance to an order."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """An order with the name that routes and logs have for it."""

    name: str
    order: Order


def in_order(
    members: Sequence[Member], counters: Mapping[str, Counters], state: StrategyState, rng: Random
) -> Ordering:
    """As the operator listed them."""
    del counters, rng
    return Ordering(tuple(members), state)


def weighted(
    members: Sequence[Member], counters: Mapping[str, Counters], state: StrategyState, rng: Random
) -> Ordering:
    """Smooth weighted round robin; the weight is the daily limit, and a member without one takes no part (DESIGN D9).

    The usual algorithm, but with credits in requests instead of weights: so they keep their meaning when a member
    comes, goes or gets another limit. Otherwise those that remain could starve for as many requests as the largest
    weight has, once it is exhausted.
    """
    del counters, rng
    part = [member for member in members if member.quota.daily_requests > 0]
    if not part:
        return Ordering((), state)
    keys = [(member.provider, member.candidate.model) for member in part]
    weights = _weights(part)
    total = sum(weights)
    lags = dict(state.lags)
    known = lags.get
    owed = [known(key, 0.0) + weight / total for key, weight in zip(keys, weights, strict=True)]
    lags.update(zip(keys, owed, strict=True))
    order = sorted(range(len(part)), key=owed.__getitem__, reverse=True)  # stable: of equals, the operator's first
    lags[keys[order[0]]] -= 1.0
    return Ordering(tuple([part[position] for position in order]), StrategyState(lags))


def _weights(members: Sequence[Member]) -> list[float]:
    """Daily limits; models of one provider share its limit."""
    names = [member.provider for member in members]
    if len(set(names)) == len(names):
        return [member.quota.daily_requests for member in members]
    return [member.quota.daily_requests / names.count(member.provider) for member in members]


def least_used(
    members: Sequence[Member], counters: Mapping[str, Counters], state: StrategyState, rng: Random
) -> Ordering:
    """The smallest part of the daily limit used first, ties by chance, members without a limit last (DESIGN D8)."""
    chance = rng.random
    # One sort: ties of a ratio are decided by chance, and the position only spares members a comparison.
    ranked = [
        (counters[member.provider].daily / limit if (limit := member.quota.daily_requests) > 0 else _NONE, chance(), at)
        for at, member in enumerate(members)
    ]
    ranked.sort()
    return Ordering(tuple([members[at] for _, _, at in ranked]), state)


def share_used(member: Member, used: Counters) -> float:
    """What `least_used` ranks by; it has the same inline, for speed."""
    limit = member.quota.daily_requests
    return used.daily / limit if limit > 0 else _NONE


_NONE = float("inf")
"""In place of a ratio where there is no limit."""

_STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("in_order", in_order),
        Strategy("weighted", weighted),
        Strategy("least_used", least_used),
    )
}
_OTHER_SPELLINGS = {
    "chainofresponsibility": "in_order",
    "inorder": "in_order",
    "weightedroundrobin": "weighted",
    "leastused": "least_used",
}
DEFAULT_STRATEGY = "in_order"
STRATEGY_NAMES = tuple(_STRATEGIES)


@lru_cache(maxsize=64)
def strategy_named(text: str) -> tuple[Strategy, bool]:
    """The strategy of that name, ours or InferRouter's, in any case; and whether the name is known.

    No name is the default's; an unknown one stands for it as well, so that a configuration outlives a slip.
    """
    name = text.strip().lower()
    name = _OTHER_SPELLINGS.get(name.replace("_", "").replace("-", ""), name)
    known = _STRATEGIES.get(name or DEFAULT_STRATEGY)
    return (known, True) if known is not None else (_STRATEGIES[DEFAULT_STRATEGY], False)
