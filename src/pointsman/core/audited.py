"""What an entry of the audit record tells of a record before and after a change. Pure.

Owns that no credential, token or digest gets into it: whatever is a `Secret` or bytes is told by a word, whichever
record it is in. What is told of which write: `gateway.audited_writes`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pointsman.core.secret import Secret

SET, CHANGED, REMOVED = "set", "changed", "removed"
LONGEST_TEXT = 512
"""Characters of one value that are told as they are; of a longer one its beginning, its length and its hash."""
_LEFT_OUT = frozenset({"account", "name", "from_file", "created_at", "updated_at", "last_seen_at", "digest"})
"""Of every record: what the entry tells anyway, or what is no change."""
_DIGEST = "_digest"

Shown = Mapping[str, Any]


def shown(record: object | None) -> Shown | None:
    """A record's fields by name, secrets as they are: only `told` makes text of it."""
    if record is None:
        return None
    if not is_dataclass(record):
        raise TypeError(f"{type(record).__name__} is no record")
    values = ((field.name, getattr(record, field.name)) for field in fields(record))
    return {name.removesuffix(_DIGEST): value for name, value in values if name not in _LEFT_OUT}


def told(before: object | None, after: object | None) -> tuple[str, str]:
    """JSON for both sides; of a record that was there before and is after, what differs."""
    return _texts(*_sides(shown(before), shown(after)))


def changed_records(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, str]:
    """The same of many records, by what each is called: those that differ."""
    old: dict[str, object] = {}
    new: dict[str, object] = {}
    for label in (*before, *(label for label in after if label not in before)):
        was, now = before.get(label), after.get(label)
        if was != now:
            left, right = _sides(shown(was), shown(now))
            old |= {} if left is None else {label: left}
            new |= {} if right is None else {label: right}
    return _texts(old, new)


def revision_of(records: Mapping[str, object]) -> str:
    """A hash over what may be told of records."""
    return hashlib.blake2b(
        as_json({label: _whole(shown(record)) for label, record in records.items()}).encode(), digest_size=16
    ).hexdigest()


def as_json(value: object) -> str:
    """One spelling, in ASCII: every database and every terminal takes it."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _texts(before: object | None, after: object | None) -> tuple[str, str]:
    return "" if before is None else as_json(before), "" if after is None else as_json(after)


def _sides(before: Shown | None, after: Shown | None) -> tuple[object | None, object | None]:
    if before is None or after is None:
        return _whole(before), _whole(after)
    old: dict[str, object] = {}
    new: dict[str, object] = {}
    for name in (*before, *(name for name in after if name not in before)):
        if before.get(name) != after.get(name) or (name in before) != (name in after):
            _differ(name, before, after, old, new)
    return old, new


def _differ(name: str, before: Shown, after: Shown, old: dict[str, object], new: dict[str, object]) -> None:
    was, now = before.get(name), after.get(name)
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        old[name], new[name] = _sides(was, now)
    elif _is_hidden(was) or _is_hidden(now):
        if name in before and was is not None:
            old[name] = SET
        new[name] = REMOVED if name not in after or now is None else SET if name not in old else CHANGED
    else:
        if name in before:
            old[name] = _value(was)
        if name in after:
            new[name] = _value(now)


def _whole(record: Shown | None) -> object | None:
    """Without what is empty: that is how a field is when nobody said anything."""
    if record is None:
        return None
    return {name: _value(value) for name, value in record.items() if value not in (None, "", (), {}, False)}


def _value(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _is_hidden(value):
        return SET
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, Mapping):
        return {str(name): _value(one) for name, one in value.items()}
    if is_dataclass(value):
        return {field.name: _value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Iterable):
        return [_value(one) for one in value]
    raise TypeError(f"{type(value).__name__} cannot be told")


def _is_hidden(value: object) -> bool:
    return isinstance(value, Secret | bytes | bytearray | memoryview)


def _short(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:LONGEST_TEXT]}… ({len(text)} characters, SHA-256 {digest})"
