"""The stage `audit`: what policies and budgets decided on a request goes into the audit record.

Owns which decisions are told, and what of them. How many are told one by one is `decisions`'; nothing of a request's
text gets here.
"""

from pointsman.core.policy import Effect
from pointsman.events.record import Record
from pointsman.gateway.decisions import Decisions

_BUDGET_REASONS = frozenset({"insufficient_quota", "budget_uncounted"})
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
            self._note(record, "budget.refuse", {"route": record.route, "reason": record.reason})
        for effect in _STRONGEST:
            hits = [hit for hit in notes.hits if hit.effect is effect]
            if hits:
                told = [{"rule": hit.rule, "place": hit.place} for hit in hits[:_MOST_HITS]]
                detail: dict[str, object] = {
                    "route": record.route,
                    "version": notes.policy_version,
                    "hits": told,
                    "count": len(hits),
                }
                self._note(record, f"policy.{effect.value}", detail)

    def _note(self, record: Record, action: str, detail: dict[str, object]) -> None:
        self._decisions.note_decision(record.caller.account, actor_of(record), action, record.request_id, detail)


def actor_of(record: Record) -> str:
    """Whose request it was, in the words of `core.audit.AuditEntry.actor`."""
    caller = record.caller
    return f"{caller.kind}:{caller.key_name}" if caller.key_name else ANYONE
