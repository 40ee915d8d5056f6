"""Judges event lines by the published OCSF schema, strictly: what it does not know is an error."""

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from pointsman.core.event_kinds import EVENT_KINDS, OCSF_VERSION

KINDS = {kind.name: kind for kind in EVENT_KINDS}
_TEXTS = {"activity_id": "activity_name", "state_id": "state"}


@functools.cache
def _published() -> Any:
    return get_ocsf_schema(OCSF_VERSION)


@functools.cache
def _validator(class_uid: int, profiles: tuple[str, ...]) -> Any:
    schema = OcsfJsonSchemaEmbedded(_published())
    name = schema.lookup_class_name_from_uid(class_uid)
    known = _published()["classes"][name]["profiles"]
    assert set(profiles) <= set(known), f"{name} has no profile {set(profiles) - set(known)}"
    return Draft202012Validator(schema.get_class_schema(name, list(profiles)))


def faults(event: dict[str, Any]) -> list[str]:
    """What is wrong with an event; empty when nothing is."""
    metadata = event.get("metadata", {})
    validator = _validator(event["class_uid"], tuple(metadata.get("profiles", ())))
    found = [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in validator.iter_errors(event)]
    if metadata.get("version") != OCSF_VERSION:
        found.append("metadata.version is not the schema's")
    if event["type_uid"] != event["class_uid"] * 100 + event["activity_id"]:
        found.append("type_uid is not class and activity")
    if event["category_uid"] != event["class_uid"] // 1000:
        found.append("category_uid is not the class's")
    for number, text in _TEXTS.items():
        if event.get(number) == 99 and not event.get(text):
            found.append(f"{number} 99 without {text}")
    kind = KINDS[metadata["event_code"]]
    if (event["type_uid"], event["severity_id"]) != (kind.type_uid, kind.severity):
        found.append("not what its kind says")
    if ("action_id" in event) != (kind.verdict is not None):
        found.append("a verdict where there is none, or none where there is one")
    return found


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a log. Raises AssertionError for one that is not valid."""
    assert text == "" or text.endswith("\n")
    events = [json.loads(line) for line in text.splitlines()]
    for event in events:
        assert faults(event) == [], event
    return events
