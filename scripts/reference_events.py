"""The page docs/reference/events.md: the vocabulary of events, its numbers, and a line of each kind."""

import json

from scripts.event_examples import examples

from pointsman.core.event_kinds import EVENT_KINDS, EventKind, OcsfClass
from pointsman.events.human_line import human_line
from pointsman.events.ocsf import ocsf_line
from pointsman.events.reasons import REASONS

_HEAD = """# Events

Each event is one line on standard error and, with `--ocsf-log`, one JSON line valid against OCSF 1.8.0. Both carry the
same facts. How to collect them: [howto](../howto/collect-events.md).

An event never holds a body, a header value or a key. A path is told without its query, and what looks like a key in it
is `***`; a host is told as it was asked for, without user info. Text from outside is escaped and bounded to 200
characters.

## Which events a request leaves

* **One that matched**: `request_matched` when it has been read, and exactly one of `infer_completed`, `infer_failed`,
  `infer_cancelled` or `request_refused` when it has ended. What broke on the way is an event of its own just before
  that: `upstream_failed`, `stream_truncated` or `internal_error`.
* **One that did not**: one event.

Why two events and not one: they answer different questions and belong to different OCSF classes. The first is a
verdict of access control (4001, allowed), like those of what was denied, and it is there while a long answer still runs
or when the process dies; the second is the use of a model (6003), with its cost. Count inferences by 6003, verdicts
by `action_id`, faults by 4001 Fail. All events of one request share `metadata.correlation_uid`, which is the
`x-pointsman-request-id` of the answer; `metadata.uid` is unique.

## Kinds

`metadata.event_code` is the kind; names, keys and reasons are a contract.

"""
_COMMON = """
All have `class_uid`, `category_uid`, `activity_id`, `type_uid`, `severity_id`, `status_id` (1 success, 2 failure),
`time` (ms; the end, for what has a `duration`) and `metadata`. `status_code` is the reason below, `status_detail` says
it in prose. In a human line values are bare words, or in double quotes with backslash escapes; `bytes_in` is the
request's body, `bytes_out` the answer's.

A gateway's data listener adds to `unmapped`: `account` and `key` of the caller (`sandbox:NAME` for a sandbox's token),
as in usage rows, and where rules of a policy matched `policy_version`, `policy_hit_count`, and the first eight
`policy_hits` with `rule`, `effect`, `would` and `place`. `metadata.correlation_uid` is the request's id in the
operation log, in usage rows, receipts and the audit record.

"""
_TOKENS = """## Token counts

`message_context` holds what the upstream reported: `prompt_tokens`, `completion_tokens` and, when both are known,
`total_tokens`. They are read off the bytes that pass, of every dialect, streams included; a chat stream reports them
only when its client asks with `stream_options.include_usage`. Of compressed answers only gzip
is read, up to 64 KiB of it. Nothing is estimated here; usage rows tell estimates as such.
"""
_CLASS_NAMES = {
    OcsfClass.NETWORK_ACTIVITY: "Network Activity",
    OcsfClass.CONFIG_STATE: "Device Config State Change",
    OcsfClass.API_ACTIVITY: "API Activity",
    OcsfClass.APPLICATION_ERROR: "Application Error",
}
_ACTIVITIES = {
    400101: "Open",
    400104: "Fail",
    400105: "Refuse",
    501901: "Log",
    600399: "Other",
    600801: "General Error",
}


def _row(kind: EventKind) -> str:
    ocsf = f"{int(kind.ocsf_class)} {_CLASS_NAMES[kind.ocsf_class]}, {_ACTIVITIES[kind.type_uid]}"
    verdict = ""
    if kind.verdict is not None:
        verdict = f"{'Allowed' if kind.verdict.action_id == 1 else 'Denied'}, {kind.verdict.name.capitalize()}"
    return f"| `{kind.name}` | {kind.when} | {ocsf} | {kind.severity.name.capitalize()} | {verdict} |\n"


def _fields(event: dict[str, object], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in event.items():
        names += _fields(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"`{prefix}{key}`"]
    return names


_EVERYWHERE = {"class_uid", "category_uid", "activity_id", "type_uid", "severity_id", "status_id", "time", "metadata"}
_EVERYWHERE |= {"status_code", "status_detail"}


def events_page() -> str:
    """The page, without its note on where it comes from."""
    parts = [_HEAD, "| kind | when | OCSF class, activity | severity | action, disposition |\n|---|---|---|---|---|\n"]
    parts += [_row(kind) for kind in EVENT_KINDS]
    parts.append(_COMMON)
    for kind, occurrence in examples():
        line = ocsf_line(kind, occurrence)
        event = json.loads(line)
        own = sorted(_fields({key: value for key, value in event.items() if key not in _EVERYWHERE}))
        parts.append(f"### `{kind.name}`\n\nFields of its own: {', '.join(own) or 'none'}.\n\n")
        parts.append(f"```\n{human_line(kind, occurrence)}\n{line}\n```\n\n")
    parts.append("## Reasons\n\n| reason | meaning |\n|---|---|\n")
    parts += [f"| `{word}` | {meaning} |\n" for word, meaning in REASONS.items()]
    return "".join([*parts, "\n", _TOKENS])
