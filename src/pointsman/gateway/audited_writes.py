"""Which writes of a store the audit record tells of, and how: one line each.

A method of `store.interface.Writer` that is not here cannot be called through the audited store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pointsman.core.account import DEFAULT_ACCOUNT, Account

_Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """How the record before and the record after come out of a method's arguments."""

    action: str
    """What an entry calls it; `.put` becomes `.create` or `.update`."""
    lookup: str = ""
    """The reader's method that gives the record before; empty when there is none."""
    wanted: Callable[[_Arguments], _Arguments] = lambda arguments: arguments[:2]
    """The lookup's arguments."""
    after: Callable[[Any, _Arguments, Any], Any] = lambda before, arguments, result: arguments[0]
    """The record after, from the one before, the arguments and what the method returned; None: there is none."""


def account_of(record: Any) -> str:
    """Whose record it is: an account's own is its own, one of the whole gateway the default's."""
    if isinstance(record, Account):
        return record.name
    return getattr(record, "account", "") or DEFAULT_ACCOUNT


def subject_of(record: Any, noun: str) -> str:
    """What people call it; of what has no name, of which there is one, its noun."""
    names = (getattr(record, field, "") for field in ("alias", "name", "id"))
    return next((str(name) for name in names if name), noun)


def _creates(noun: str) -> AuditedWrite:
    return AuditedWrite(f"{noun}.create")


def _replaces(noun: str, identity: str = "name") -> AuditedWrite:
    return AuditedWrite(f"{noun}.update", noun, lambda arguments: _own(arguments[0], identity))


def _puts(noun: str, identity: str = "name") -> AuditedWrite:
    """Creates or replaces it, and returns it as it is now."""
    wanted: Callable[[_Arguments], _Arguments] = lambda arguments: _own(arguments[0], identity)  # noqa: E731
    return AuditedWrite(f"{noun}.put", noun, wanted, lambda before, arguments, result: result)


def _deletes(noun: str) -> AuditedWrite:
    return AuditedWrite(f"{noun}.delete", noun, after=lambda before, arguments, result: None)


def _sets(noun: str, verb: str, field: str) -> AuditedWrite:
    """The third argument is the field's value from now on."""
    after: Callable[[Any, _Arguments, Any], Any] = lambda before, arguments, result: replace(  # noqa: E731
        before, **{field: arguments[2]}
    )
    return AuditedWrite(f"{noun}.{verb}", noun, after=after)


def _own(record: Any, identity: str) -> _Arguments:
    return record.account, getattr(record, identity)


AUDITED: Mapping[str, AuditedWrite] = {
    "insert_provider": _creates("provider"),
    "replace_provider": _replaces("provider"),
    "delete_provider": _deletes("provider"),
    "put_route": _puts("route"),
    "delete_route": _deletes("route"),
    "insert_sandbox_token": _creates("sandbox_token"),
    "revoke_sandbox_token": _sets("sandbox_token", "revoke", "revoked_at"),
    "insert_key": _creates("key"),
    "revoke_key": _sets("key", "revoke", "revoked_at"),
    "insert_account": _creates("account"),
    "insert_runner": _creates("runner"),
    "replace_runner_token": _sets("runner", "rotate", "token_digest"),
    "delete_runner": _deletes("runner"),
    "insert_ai_model": _creates("ai_model"),
    "replace_ai_model": _replaces("ai_model", "id"),
    "delete_ai_model": _deletes("ai_model"),
    "insert_budget": _creates("budget"),
    "replace_budget": _replaces("budget"),
    "delete_budget": _deletes("budget"),
}
"""By the method's name. A method that answers False has changed nothing, and is not told of."""
