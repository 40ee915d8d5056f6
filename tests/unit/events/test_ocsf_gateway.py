"""What a gateway's events tell of whose request it was, and of rules that matched."""

import json
from typing import Any

import pytest

from pointsman.core.caller import ANYBODY, KEY, SANDBOX_TOKEN, Caller
from pointsman.core.event_kinds import INFER_COMPLETED, REQUEST_REFUSED, EventKind
from pointsman.core.model_errors import PolicyBlocked
from pointsman.core.policy import Effect, PolicyHit
from pointsman.events.ocsf import ocsf_line
from pointsman.events.ocsf_gateway import MOST_HITS
from pointsman.events.record import Record, StageNotes
from tests.support.ocsf import faults

HIT = PolicyHit("no-shell", Effect.BLOCK, "/tools/0", Effect.BLOCK)


def record(caller: Caller, *hits: PolicyHit) -> Record:
    made = Record("ab-1", 1.0, "POST", "/v1/chat/completions", "openai_chat_completions")
    made.caller, made.notes, made.status = caller, StageNotes(), 200
    made.notes.hits, made.notes.policy_version = hits, 3
    return made


def unmapped(kind: EventKind, of: Record) -> dict[str, Any]:
    event = json.loads(ocsf_line(kind, of))
    assert faults(event) == []
    assert event["metadata"]["correlation_uid"] == of.request_id
    found: dict[str, Any] = event["unmapped"]
    return found


@pytest.mark.parametrize("kind", [INFER_COMPLETED, REQUEST_REFUSED], ids=lambda kind: kind.name)
def test_an_event_names_the_account_and_the_key_as_usage_does(kind: EventKind) -> None:
    of = record(Caller("team", "laptop", KEY))
    of.fail(PolicyBlocked("refused"))
    found = unmapped(kind, of)
    assert (found["account"], found["key"]) == ("team", "laptop")
    assert "policy_hits" not in found


def test_a_sandbox_is_told_apart_from_a_key_of_its_name() -> None:
    assert unmapped(INFER_COMPLETED, record(Caller("team", "box", SANDBOX_TOKEN)))["key"] == "sandbox:box"


def test_of_nobody_in_particular_nothing_is_told() -> None:
    assert "account" not in unmapped(INFER_COMPLETED, record(ANYBODY))
    assert "account" not in unmapped(INFER_COMPLETED, record(Caller(ANYBODY.account)))


@pytest.mark.parametrize("kind", [INFER_COMPLETED, REQUEST_REFUSED], ids=lambda kind: kind.name)
@pytest.mark.parametrize("caller", [ANYBODY, Caller("team", "laptop", KEY)], ids=["anybody", "a key"])
def test_rules_that_matched_are_told_with_their_version_and_place(kind: EventKind, caller: Caller) -> None:
    of = record(caller, HIT)
    of.fail(PolicyBlocked("refused"))
    found = unmapped(kind, of)
    assert found["policy_version"] == 3
    assert found["policy_hits"] == [{"rule": "no-shell", "effect": "block", "would": "block", "place": "/tools/0"}]


@pytest.mark.parametrize("count", [MOST_HITS - 1, MOST_HITS, MOST_HITS + 1])
def test_no_more_than_so_many_matches_are_told_and_all_are_counted(count: int) -> None:
    found = unmapped(INFER_COMPLETED, record(ANYBODY, *[HIT] * count))
    assert len(found["policy_hits"]) == min(count, MOST_HITS)
    assert found["policy_hit_count"] == count
