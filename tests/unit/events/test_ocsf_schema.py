"""Every kind of event is valid against the published schema, and the check notices what is not."""

import json
from typing import Any

import pytest
from scripts.event_examples import examples

from pointsman.core.event_kinds import EVENT_KINDS, INFER_COMPLETED, EventKind
from pointsman.events.human_line import human_line
from pointsman.events.ocsf import ocsf_line
from pointsman.events.reasons import REASONS
from pointsman.events.record import Occurrence, Record
from tests.support.ocsf import faults

EXAMPLES = list(examples())


@pytest.mark.parametrize(("kind", "occurrence"), EXAMPLES, ids=[kind.name for kind, _ in EXAMPLES])
def test_an_event_of_every_kind_is_valid(kind: EventKind, occurrence: Occurrence) -> None:
    event = json.loads(ocsf_line(kind, occurrence))
    assert faults(event) == []
    assert event["metadata"]["event_code"] == kind.name
    assert event.get("status_code", "internal_error") in REASONS


def test_the_examples_cover_the_vocabulary() -> None:
    assert [kind for kind, _ in EXAMPLES] == list(EVENT_KINDS)
    assert len({kind.name for kind in EVENT_KINDS}) == len(EVENT_KINDS)


@pytest.mark.parametrize(("kind", "occurrence"), EXAMPLES, ids=[kind.name for kind, _ in EXAMPLES])
def test_the_human_line_is_one_line_that_begins_with_the_kind(kind: EventKind, occurrence: Occurrence) -> None:
    line = human_line(kind, occurrence)
    assert line.startswith(f"pointsman: {kind.name} ")
    assert line.isprintable()


def completed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ocsf_line(*next(each for each in EXAMPLES if each[0] is INFER_COMPLETED)))
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"action_id": 1},
        {"severity_id": 3},
        {"type_uid": 600301},
        {"category_uid": 4},
        {"time": "now"},
        {"message_context": {"prompt_tokens": 3}},
        {"ai_model": {"name": "model"}},
        {"http_request": {"http_method": "BREW"}},
        {"activity_name": ""},
    ],
    ids=str,
)
def test_the_check_notices_what_is_wrong(change: dict[str, Any]) -> None:
    assert faults(completed()) == []
    assert faults(completed() | change) != []


@pytest.mark.parametrize("missing", ["metadata.product", "actor", "src_endpoint", "api", "time", "class_uid"])
def test_the_check_notices_what_is_missing(missing: str) -> None:
    event = completed()
    holder, _, name = missing.rpartition(".")
    del (event[holder] if holder else event)[name]
    if missing == "class_uid":
        with pytest.raises(KeyError):
            faults(event)
    else:
        assert faults(event) != []


@pytest.mark.parametrize("usage", [None, (3, -1), (-1, 4), (3, 4), (0, 0)])
@pytest.mark.parametrize("status", [0, 200, 599])
@pytest.mark.parametrize("text", ['"', "\\", "\x00\x1b[31m\n", "é→\u2028", "x" * 5000, ""])
def test_any_combination_of_parts_is_valid(usage: Any, status: int, text: str) -> None:
    record = next(each for kind, each in EXAMPLES if kind is INFER_COMPLETED)
    assert isinstance(record, Record)
    other = Record("id-1", record.time, "GET", f"/v1/models/{text}", "model_discovery")
    other.candidate, other.usage, other.status = record.candidate, usage, status
    other.reason, other.detail = ("stream_truncated", text) if text else ("", "")
    event = json.loads(ocsf_line(INFER_COMPLETED, other))
    assert faults(event) == []
    assert ("http_response" in event, "message_context" in event) == (status > 0, usage is not None)
