"""What would become of a request at the candidates that its route leads to. Pure: nothing is sent, counted or kept.

The plan is the one that an attempt loop would make; its new state is thrown away. Which route a request leads to, and
whether its sender may use it, is for whoever asks.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from pointsman.core.attempts import Chain, Member, Skipped
from pointsman.core.candidate import Candidate
from pointsman.core.explanation import (
    CHAT_PATH,
    ExplainedCandidate,
    KeyFact,
    KeyState,
    QuotaFact,
    Rewrite,
    RunnerFact,
)
from pointsman.core.forecast import runs_dry_at
from pointsman.core.limits import Limits, RunnerLimits
from pointsman.core.quota import Counters, Quota
from pointsman.core.quota_window import MINUTE_SECONDS, day_at, minute_of
from pointsman.core.runner_model import RunnerModel
from pointsman.core.time_zones import zone_named
from pointsman.routing.chain_plan import plan
from pointsman.routing.hops import HOP_FIELD
from pointsman.routing.rewrite import base_path, header_rules
from pointsman.routing.strategies import StrategyState, share_used, strategy_named
from pointsman.wire.json_model import is_json_like

_REMOTE = ("http", "https")
_FRAMING = ("content-length", "host")
"""Ours on every request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What matters of a request at a candidate."""

    model: str | None
    target: str
    """Path and query."""
    body: bytes | None
    """None: whatever it holds."""
    headers: tuple[str, ...] = ()
    """Names, in any case."""
    by_gateway: bool = True
    """Whether a gateway sends it on, which leaves its mark; otherwise a sandbox does."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a plan would go by, at this moment."""

    counters: Callable[[Member], Counters]
    key_of: Callable[[Member], KeyFact]
    now: float
    state: StrategyState
    rng: Random
    """Not the one that requests draw from."""
    limits: Limits


def explain_chain(
    chain: Chain, protocol: str, asked: Asked, around: Circumstances
) -> tuple[tuple[ExplainedCandidate, ...], tuple[Skipped, ...]]:
    """Those that would be tried in their order, then the others; and what an attempt loop would note of these.

    Who has no key that can be read, or no model, is passed over when its turn comes, without being asked: here it is
    with the others.
    """
    used: dict[str, Counters] = {}

    def counters(member: Member) -> Counters:
        if member.provider not in used:
            used[member.provider] = around.counters(member)
        return used[member.provider]

    made, _ = plan(chain, protocol, counters, around.now, around.state, around.rng)
    members = (*chain.members, *((chain.fallback,) if chain.fallback is not None else ()))
    keys = {id(each): around.key_of(each) for each in members}
    models = {id(each): _model_for(each, chain, asked) for each in members}
    reasons = {id(each): _passed_over(each, models[id(each)], keys[id(each)]) for each in made.attempts}
    attempts = [each for each in made.attempts if not reasons[id(each)]]
    skipped = (*made.skipped, *(Skipped(e.provider, reasons[id(e)]) for e in made.attempts if reasons[id(e)]))
    drawn = _drawn(chain, attempts, counters)
    tried = set(map(id, attempts))

    def explained(member: Member, place: int) -> ExplainedCandidate:
        known = explain_candidate(
            replace(member.candidate, model=models[id(member)]), asked, keys[id(member)], around.limits
        )
        skip = None if place else next((each for each in skipped if each.provider == member.provider), None)
        return replace(
            known,
            provider=member.provider,
            place=place,
            skip_reason=skip.reason if skip is not None else "",
            skip_until=skip.until if skip is not None else 0.0,
            is_fallback=member is chain.fallback,
            by_chance=id(member) in drawn,
            quota=quota_fact(member.quota, counters(member), around.now),
        )

    told = [explained(member, place) for place, member in enumerate(attempts, 1)]
    told += [explained(member, 0) for member in members if id(member) not in tried]
    return tuple(told), skipped


def _model_for(member: Member, chain: Chain, asked: Asked) -> str:
    """What it would be asked for: what answers here itself keeps its own name."""
    if chain.forwards_model and asked.model is not None and member.candidate.endpoint.scheme in _REMOTE:
        return asked.model
    return member.candidate.model


def _passed_over(member: Member, model: str, key: KeyFact) -> str:
    """Why it is not called when its turn comes; empty when it is."""
    if not model and member.candidate.endpoint.scheme != "mock":
        return "no_model"
    return "auth_error" if key.state is KeyState.MISSING else ""


def _drawn(chain: Chain, attempts: list[Member], counters: Callable[[Member], Counters]) -> set[int]:
    """Members, by identity, whose place among their equals is drawn."""
    if strategy_named(chain.strategy)[0].name != "least_used":
        return set()
    shares = {id(each): share_used(each, counters(each)) for each in attempts if each is not chain.fallback}
    often = Counter(shares.values())
    return {each for each, share in shares.items() if often[share] > 1}


def explain_candidate(candidate: Candidate, asked: Asked, key: KeyFact, limits: Limits) -> ExplainedCandidate:
    """One candidate that would be tried first, without what a chain adds."""
    return ExplainedCandidate(
        provider="",
        provider_type=candidate.provider_type,
        endpoint=candidate.endpoint.told,
        place=1,
        key=key,
        rewrite=rewrite_of(candidate, asked),
        header_seconds=candidate.timeout_seconds or limits.response_header_seconds,
    )


def explain_runner(model: RunnerModel, asked: Asked, runner: RunnerFact, limits: RunnerLimits) -> ExplainedCandidate:
    """A model beside a runner: one attempt, or none at all. Neither query nor header goes over a runner's line."""
    identifier = model.candidate.model
    dropped = tuple(dict.fromkeys(name.strip().lower() for name in asked.headers))
    return ExplainedCandidate(
        provider=model.candidate.provider,
        provider_type=model.candidate.provider_type,
        endpoint=model.base_url.removesuffix("/v1"),
        place=1 if runner.is_connected else 0,
        skip_reason="" if runner.is_connected else "runner_offline",
        rewrite=Rewrite(asked.model, identifier, _body_change(asked, identifier), CHAT_PATH, (), (), (), dropped),
        header_seconds=limits.idle_seconds,
        runner=runner,
    )


def rewrite_of(candidate: Candidate, asked: Asked) -> Rewrite:
    """What its upstream would get; see `rewrite.RequestTemplate`, which does it."""
    if candidate.endpoint.scheme == "mock":
        return Rewrite(asked.model, candidate.model, _body_change(asked, candidate.model), asked.target, (), (), (), ())
    rules = header_rules(candidate)
    ours = [*_FRAMING, *([HOP_FIELD] if asked.by_gateway or candidate.is_own_gateway else [])]
    if candidate.api_key is not None or candidate.endpoint.scheme in _REMOTE:
        ours.append(rules.credential)
    sent = dict.fromkeys(name.strip().lower() for name in asked.headers)
    return Rewrite(
        model_before=asked.model,
        model_after=candidate.model,
        body=_body_change(asked, candidate.model),
        path=base_path(candidate).join(asked.target),
        headers_kept=rules.kept,
        headers_set=tuple(sorted(ours)),
        headers_default=tuple(name for name, _ in rules.defaults),
        headers_dropped=tuple(name for name in sent if name not in rules.kept),
    )


def _body_change(asked: Asked, model: str) -> str:
    if asked.body is None:
        return "pinned"
    if asked.model is not None:
        return "same" if asked.model == model else "replaced"
    return "inserted" if is_json_like(asked.body) else "unchanged"


def quota_fact(quota: Quota, used: Counters, now: float) -> QuotaFact:
    """A quota as of now. Its zone must be one that this machine knows."""
    day = day_at(zone_named(quota.reset_timezone), now)
    return QuotaFact(
        daily_limit=quota.daily_requests,
        daily_used=used.daily,
        minute_limit=quota.requests_per_minute,
        minute_used=used.minute,
        day_resets_at=day.end,
        minute_resets_at=float((minute_of(now) + 1) * MINUTE_SECONDS),
        exhausted_until=used.exhausted_until if used.exhausted_until > now else 0.0,
        runs_dry_at=now if used.exhausted_until > now else runs_dry_at(quota, used, day, now),
    )
