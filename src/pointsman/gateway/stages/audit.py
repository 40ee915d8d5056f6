"""The stage `audit`: what policies and budgets decided on a request goes into the audit record.

Owns which decisions are told, and what of them. How many are told one by one is `decisions`'; nothing of a request's
text gets here.
"""

from collections.abc import Iterator, Sequence

from pointsman.core.policy import Effect, PolicyHit
from pointsman.events.record import Record
from pointsman.gateway.stages.decisions import Decisions

_BUDGET_REASONS = frozenset({"insufficient_quota", "budget_uncounted"})
BUDGET_ACTION = "budget.refuse"
_STRONGEST = (Effect.BLOCK, Effect.REDACT)
ANYONE = "anyone"
"""Of a listener that asks for no key."""
_MOST_HITS = 8
"""Told of one request; the others are counted."""


class AuditStage:
    """For one data listener."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    def note(self, record: Record) -> None:
        """The stage. A rule that only flags, or is tried in a dry run, decides nothing and is told elsewhere."""
        notes = record.notes
        if notes is None or not (notes.hits or record.reason in _BUDGET_REASONS):
            return
        if record.reason in _BUDGET_REASONS:
            self._note(record, BUDGET_ACTION, {"route": record.route, "reason": record.reason})
        for effect, hits in _decided(notes.hits):
            if hits:
                told = [{"rule": hit.rule, "place": hit.place} for hit in hits[:_MOST_HITS]]
                detail: dict[str, object] = {
                    "route": record.route,
                    "version": notes.policy_version,
                    "hits": told,
                    "count": len(hits),
                }
                self._note(record, _action(effect), detail)

    def _note(self, record: Record, action: str, detail: dict[str, object]) -> None:
        self._decisions.note_decision(record.caller.account, actor_of(record), action, record.request_id, detail)


def _decided(hits: Sequence[PolicyHit]) -> Iterator[tuple[Effect, list[PolicyHit]]]:
    for effect in _STRONGEST:
        yield effect, [hit for hit in hits if hit.effect is effect]


def _action(effect: Effect) -> str:
    return f"policy.{effect.value}"


def actions_of(reason: str, hits: Sequence[PolicyHit]) -> list[str]:
    """What would be told of a request that ends for this reason, and whose rules matched so."""
    actions = [BUDGET_ACTION] if reason in _BUDGET_REASONS else []
    return actions + [_action(effect) for effect, found in _decided(hits) if found]


def actor_of(record: Record) -> str:
    """Whose request it was, in the words of `core.audit.AuditEntry.actor`."""
    caller = record.caller
    return f"{caller.kind}:{caller.key_name}" if caller.key_name else ANYONE
