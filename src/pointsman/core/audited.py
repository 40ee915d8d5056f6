"""What an entry of the audit record tells of a record before and after a change. Pure.

Owns that no credential, token or digest gets into it: whatever is a `Secret` or bytes is told by a word, whichever
record it is in. What is told of which write: `gateway.audited_writes`.
"""

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from pointsman.core.budget import Budget, BudgetUnit
from pointsman.core.money import shown_amount, shown_price
from pointsman.core.price import Price
from pointsman.core.secret import Secret

SET, CHANGED, REMOVED = "set", "changed", "removed"
LONGEST_TEXT = 512
"""Characters of one value that are told as they are; of a longer one its beginning, its length and its hash."""
ORDER = "(order)"
"""In the place of a list of records with ids: the ids, in their order."""
_LEFT_OUT = frozenset({"account", "name", "from_file", "created_at", "updated_at", "last_seen_at", "digest"})
"""Of every record: what the entry tells anyway, or what is no change."""
_DIGEST = "_digest"

_Tree = dict[str, Any]
"""Texts, numbers, None, hidden values, lists of these, and trees."""


def told(before: object | None, after: object | None) -> tuple[str, str]:
    """JSON for both sides; of a record that was there before and is after, what differs."""
    return _texts(*_sides(_tree(before), _tree(after)))


def changed_records(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, str]:
    """The same of many records, by what each is called: those that differ."""
    return _texts(*_sides(*({label: _tree(record) for label, record in each.items()} for each in (before, after))))


def revision_of(records: Mapping[str, object]) -> str:
    """A hash over what may be told of records."""
    text = as_json({label: _whole(_tree(record)) for label, record in records.items()})
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def as_json(value: object) -> str:
    """One spelling, in ASCII: every database and every terminal takes it."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _texts(before: object | None, after: object | None) -> tuple[str, str]:
    return "" if before is None else as_json(before), "" if after is None else as_json(after)


def _tree(record: object | None) -> _Tree | None:
    if record is None:
        return None
    if not is_dataclass(record):
        raise TypeError(f"{type(record).__name__} is no record")
    return {name.removesuffix(_DIGEST): _plain(value) for name, value in _fields_of(record) if name not in _LEFT_OUT}


def _fields_of(record: Any) -> Iterator[tuple[str, object]]:
    """Values as people write them, which commands and REST do too."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(record, Price) and isinstance(value, int):
            value = shown_amount(value) if field.name == "request" else shown_price(value)
        elif isinstance(record, Budget) and field.name == "amount" and record.unit is BudgetUnit.MONEY:
            value = shown_amount(value)
        elif isinstance(value, float) and (field.name == "at" or field.name.endswith("_at")):
            value = _time(value)
        yield field.name, value


def _time(at: float) -> str | float:
    try:
        return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return at


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | bool | int | float) or _is_hidden(value):
        return value
    if isinstance(value, Mapping):
        return {_label(name): _plain(one) for name, one in value.items()}
    if is_dataclass(value):
        return {name: _plain(one) for name, one in _fields_of(value)}
    if isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
        return str(value)  # it is iterable: over each of its addresses
    if isinstance(value, Iterable):
        listed = list(value)
        if listed and all(is_dataclass(one) and hasattr(one, "id") for one in listed):
            return {ORDER: [one.id for one in listed], **{one.id: _plain(one) for one in listed}}
        return [_plain(one) for one in listed]
    raise TypeError(f"{type(value).__name__} cannot be told")


def _label(name: object) -> str:
    return "/".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _sides(before: _Tree | None, after: _Tree | None) -> tuple[_Tree | None, _Tree | None]:
    if before is None or after is None:
        return _whole(before), _whole(after)
    old: _Tree = {}
    new: _Tree = {}
    for name in (*before, *(name for name in after if name not in before)):
        if name not in before or name not in after or before[name] != after[name]:
            _differ(name, before, after, old, new)
    return old, new


def _differ(name: str, before: _Tree, after: _Tree, old: _Tree, new: _Tree) -> None:
    was, now = before.get(name), after.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
        old[name], new[name] = _sides(was, now)
        return
    hidden = _is_hidden(was) or _is_hidden(now)
    if name in before and not (hidden and was is None):
        old[name] = _words(was)
    if hidden:
        new[name] = REMOVED if now is None else CHANGED if was is not None else SET
    elif name in after:
        new[name] = _words(now)


def _whole(record: _Tree | None) -> _Tree | None:
    """Without what is empty: nobody said anything of it."""
    if record is None:
        return None
    return {name: _words(value) for name, value in record.items() if value is not None and value not in ("", [], {})}


def _words(value: object) -> object:
    if _is_hidden(value):
        return SET
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, dict):
        return {name: _words(one) for name, one in value.items()}
    return [_words(one) for one in value] if isinstance(value, list) else value


def _is_hidden(value: object) -> bool:
    return isinstance(value, Secret | bytes | bytearray | memoryview)


def _short(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:LONGEST_TEXT]}… ({len(text)} characters, SHA-256 {digest})"
