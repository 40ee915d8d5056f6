"""What only a gateway's events tell of a request: whose it is, and which rules of a policy matched.

The same names and ids as in the operation log and in usage rows, so that one can be found by the other.
"""

from functools import lru_cache
from typing import Any

import msgspec

from pointsman.core.caller import ANYBODY, Caller
from pointsman.events.printable import printable
from pointsman.events.record import Record, StageNotes

MOST_HITS = 8
"""Told of one request; `policy_hit_count` counts all."""


def gateway_facts(record: Record) -> dict[str, Any]:
    """For an event's `unmapped`; empty at the door, and for whom nobody knows where no rule matched."""
    facts: dict[str, Any] = {}
    if record.caller != ANYBODY:
        facts |= _caller_facts(record.caller)
    if record.notes is not None and record.notes.hits:
        facts |= _policy_facts(record.notes)
    return facts


def gateway_piece(record: Record) -> str:
    """The same as a piece of JSON that others follow. Callers recur, matches do not."""
    if record.notes is not None and record.notes.hits:
        return _piece(gateway_facts(record))
    return "" if record.caller is ANYBODY else _caller_piece(record.caller)


@lru_cache(maxsize=512)
def _caller_piece(caller: Caller) -> str:
    return "" if caller == ANYBODY else _piece(_caller_facts(caller))


def _caller_facts(caller: Caller) -> dict[str, Any]:
    key = {"key": printable(caller.shown_name)} if caller.key_name else {}
    return {"account": printable(caller.account), **key}


def _piece(facts: dict[str, Any]) -> str:
    return msgspec.json.encode(facts).decode()[1:-1] + ","


def _policy_facts(notes: StageNotes) -> dict[str, Any]:
    hits = [
        {
            "rule": printable(hit.rule),
            "effect": hit.effect.value,
            "would": hit.would.value,
            "place": printable(hit.place),
        }
        for hit in notes.hits[:MOST_HITS]
    ]
    return {"policy_version": notes.policy_version, "policy_hit_count": len(notes.hits), "policy_hits": hits}
