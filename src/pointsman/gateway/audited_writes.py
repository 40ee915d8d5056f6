"""Which writes of a store the audit record tells of, and how: one line each.

A method of `store.interface.Writer` that is not here cannot be called through the audited store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pointsman.core.account import DEFAULT_ACCOUNT, Account
from pointsman.core.policy import PolicyVersion
from pointsman.core.price import PriceChange, PriceTable

_Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AuditedWrite:
    """How the record before and the record after come out of a method's arguments."""

    action: str
    """What an entry calls it; `.put` becomes `.create`, `.update` or `.delete`, and `.halt` `.resume`."""
    lookup: str = ""
    """The reader's method that gives the record before; empty when there is none."""
    wanted: Callable[[_Arguments], _Arguments] = lambda arguments: arguments[:2]
    """The lookup's arguments."""
    after: Callable[[Any, _Arguments, Any], Any] = lambda before, arguments, result: arguments[0]
    """The record after, from the one before, the arguments and what the method returned; None: there is none."""
    before: Callable[[Any, _Arguments], Any] = lambda found, arguments: found
    """The record before, out of what the lookup gave."""


def account_of(record: Any) -> str:
    """Whose record it is: an account's own is its own, one of the whole gateway the default's."""
    if isinstance(record, Account):
        return record.name
    return getattr(record, "account", "") or DEFAULT_ACCOUNT


def subject_of(record: Any, noun: str) -> str:
    """What people call it; of what has no name, of which there is one, its noun."""
    if isinstance(record, PriceChange):
        return f"{record.price.provider}/{record.price.model}"
    names = (getattr(record, field, "") for field in ("alias", "name", "id", "version"))
    return next((str(name) for name in names if name), noun)


def action_of(write: AuditedWrite, before: Any, after: Any) -> str:
    """What an entry calls a write, once both sides are known."""
    noun, _, verb = write.action.partition(".")
    if verb == "put":
        return f"{noun}.{'create' if before is None else 'delete' if after is None else 'update'}"
    if verb == "halt" and after.halted_at is None:
        return f"{noun}.resume"
    return write.action


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


def _price_before(table: PriceTable, arguments: _Arguments) -> PriceChange | None:
    change: PriceChange = arguments[0]
    price = table.prices.get((change.price.provider, change.price.model))
    return None if price is None else replace(change, version=table.version, price=price, is_removed=False)


def _policy_before(policies: Sequence[PolicyVersion], arguments: _Arguments) -> PolicyVersion | None:
    version = arguments[0].version if isinstance(arguments[0], PolicyVersion) else arguments[1]
    return next((policy for policy in policies if policy.version == version), None)


def _policy_account(arguments: _Arguments) -> _Arguments:
    return (arguments[0].account if isinstance(arguments[0], PolicyVersion) else arguments[0],)


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
    "set_account_halted": AuditedWrite(
        "account.halt",
        "account",
        lambda arguments: arguments[:1],
        lambda before, arguments, result: replace(before, halted_at=arguments[1]),
    ),
    "insert_runner": _creates("runner"),
    "replace_runner_token": _sets("runner", "rotate", "token_digest"),
    "delete_runner": _deletes("runner"),
    "insert_ai_model": _creates("ai_model"),
    "replace_ai_model": _replaces("ai_model", "id"),
    "delete_ai_model": _deletes("ai_model"),
    "insert_budget": _creates("budget"),
    "replace_budget": _replaces("budget"),
    "delete_budget": _deletes("budget"),
    "insert_price_change": AuditedWrite(
        "price.put",
        "price_table",
        lambda arguments: (arguments[0].account,),
        lambda before, arguments, result: None if arguments[0].is_removed else arguments[0],
        _price_before,
    ),
    "insert_policy": _creates("policy"),
    "mark_policy": AuditedWrite("policy.update", "policies", _policy_account, before=_policy_before),
    "delete_policy": AuditedWrite(
        "policy.delete", "policies", _policy_account, lambda before, arguments, result: None, _policy_before
    ),
}
"""By the method's name. A method that answers False has changed nothing, and is not told of."""
