"""The page docs/reference/operation-log.md: the events of routes' requests, their fields, and a line of each."""

from pointsman.core.attempts import ErrorCategory, Member, Plan, Skipped
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.events.operations import COMMON_FIELDS, EVENTS, EventShape, Happening, Subject, event_line
from pointsman.wire.usage import TokenUsage

_HEAD = """# Operation log

What became of each request on a route, and by way of which providers: a file for each day,
`operations-YYYY-MM-DD.jsonl`, one JSON object per line. [How to watch a gateway](../howto/watch-a-gateway.md) by it.

* **Days are UTC's.** An event lies in the file of its own `ts`, also when it is written after midnight.
* **Files stay** for the configured number of days before the newest one; 0 keeps all. They have mode 0640, their
  directory 0750.
* **Lines may be missing** when the disk is full or too slow: requests never wait for it. An `events_dropped` with their
  number stands where they are missing, and `pointsman_operation_events_lost_total` counts them.
* **Never there**: a prompt, an answer, a header, a key, a URL. Names are escaped and bounded to 200 characters.

The lines of one request have the same `request_id`. It leaves `infer_started` and exactly one of `infer_completed`,
`infer_failed` and `infer_cancelled`; a stream leaves `stream_completed` besides. Names of events and fields are a
contract; readers should pass over those that they do not know.

Reasons of `infer_fallback` and `infer_retried`: {categories}. `infer_failed` also has `exhausted` (nobody was left)
and the words in [events](events.md).

## Every line

| field | what |
|---|---|
"""


_REASONS = {"rate_limit_hit": "quota_daily", "infer_failed": "exhausted", "infer_cancelled": "client_gone"}


def _member(name: str, model: str) -> Member:
    return Member(name, Candidate("fast", parse_endpoint("https://upstream.example/v1"), model, ()))


def _example(shape: EventShape) -> str:
    plan = Plan((_member("groq", "a"), _member("local", "b")), (Skipped("gemini", "quota_daily", 1_796_083_200.0),))
    happening = Happening(
        shape.name,
        1_796_050_800.25,
        Subject("5f0c1d2e3a4b-7", "default", "fast"),
        "gemini" if shape.name == "rate_limit_hit" else "groq",
        "llama-3.3-70b-versatile",
        following="local",
        reason=_REASONS.get(shape.name, "server_error"),
        until=1_796_083_200.0,
        plan=plan,
        tokens=TokenUsage(12, 34),
        seconds=0.75,
        attempts=2,
        status=503,
    )
    return event_line(happening)


def operations_page() -> str:
    """Every event, every field."""
    categories = ", ".join(f"`{each}`" for each in ErrorCategory if each is not ErrorCategory.REQUEST_REJECTED)
    parts = [_HEAD.format(categories=categories)]
    parts += [f"| `{name}` | {meaning} |\n" for name, meaning in COMMON_FIELDS.items()]
    for shape in EVENTS:
        parts.append(
            f"\n## `{shape.name}`\n\n{shape.when[0].upper()}{shape.when[1:]}.\n\n| field | what |\n|---|---|\n"
        )
        parts += [f"| `{name}` | {meaning} |\n" for name, meaning in shape.fields.items()]
        parts.append(f"\n```json\n{_example(shape)}```\n")
    return "".join(parts)
