"""How the gateway's data listener takes requests in: `model` names a route, in the dialects of OpenAI and Anthropic."""

from collections.abc import Callable
from math import ceil

from pointsman.config.wording import nearest
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.bearer import bearer_of
from pointsman.core.caller import ANYBODY, Caller
from pointsman.core.errors import MalformedRequest, NoCompatibleRoute, NotInference, RouterError
from pointsman.core.model_errors import (
    AccountHalted,
    BudgetExhausted,
    BudgetUncounted,
    InvalidKey,
    ListenerError,
    LoopDetected,
    ModelNotAuthorized,
    NoProviderAvailable,
    NoSuchModel,
    SourceNotAllowed,
    UnknownPath,
)
from pointsman.core.model_table import NO_MODELS, ModelAccess, ModelTable
from pointsman.core.model_table import Target as ModelTarget
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.runner_errors import RunnerError
from pointsman.core.source_network import is_within
from pointsman.core.token_digest import digest_of
from pointsman.proxy.reception import Admitted
from pointsman.routing.hops import HOP_FIELD, comes_back
from pointsman.routing.pattern import Target, match_pattern
from pointsman.wire.anthropic_error import anthropic_error_body
from pointsman.wire.json_model import read_model
from pointsman.wire.openai_error import openai_error_body
from pointsman.wire.request import RequestHead
from pointsman.wire.response import json_answer, own_lines

_HOP = HOP_FIELD.encode("ascii")
_LONGEST_WAIT = 60
"""Seconds that a library should sleep before it tries again by itself. Anthropic's Python library (2.14) sleeps as long
as Retry-After says, hours if it must, and its program seems to hang; OpenAI's older ones leave anything above this out.
"""
_NO_RETRY = b"x-should-retry: false\r\n"
"""Not a standard's, but both vendors' libraries obey it."""
_LONGEST_KEPT = 257
"""Of the same that are noted: one more than are told, so that a cut shows."""
_LONGEST_TOLD = 64
"""Characters of a model's name that are repeated to whoever sent it."""


class _AdmittedModel(Admitted):
    """Holds the table that it was decided on."""

    __slots__ = ("_models", "_table")

    def __init__(self, protocol: str, target: Target, caller: Caller, table: ModelTable, models: "Models") -> None:
        super().__init__(protocol, target, caller)
        self._table = table
        self._models = models

    def choose(self, body: bytes) -> ModelTarget:
        self._models.check_account(self.caller.account)  # again: a body may have been long in coming
        model = read_model(body)
        if model is not None:
            self.asked = model[:_LONGEST_KEPT]
        found = self._table.find(model)
        if found is None:
            raise not_served(model, self._table)
        if not found.speaks(self.protocol):
            raise _not_spoken(model, self.protocol, found)
        return found


def told_of(error: RouterError) -> str:
    """What a client of the data listener reads of an error."""
    told = ListenerError | NoProviderAvailable | NoCompatibleRoute | RunnerError
    return error.told if isinstance(error, told) else error.text


def _not_spoken(model: str | None, protocol: str, found: ModelTarget) -> NoCompatibleRoute:
    spoken = ", ".join(each for each in P if found.speaks(each) and each is not P.MODEL_DISCOVERY)
    told = f"{NoCompatibleRoute.text}: this model does not speak {protocol}, and requests are not translated"
    return NoCompatibleRoute(f"model {model} does not speak {protocol}", f"{told}; it speaks {spoken or 'no dialect'}")


def not_served(model: str | None, table: ModelTable) -> ListenerError:
    """Why a model leads nowhere for whoever has this table. No name is hinted at that they may not use."""
    if model is None:
        return NoSuchModel('the request names no model; put a route\'s name into "model"')
    told = f" {model!r}" if len(model) <= _LONGEST_TOLD and model.isprintable() else ""
    if model in table.barred:
        return ModelNotAuthorized(f"this key may not use the model{told}; GET /v1/models lists those that it may use")
    if model in table.unserved:
        return NoSuchModel(
            f"the model{told} is not available: what it led to is gone; GET /v1/models lists what there is"
        )
    near = nearest(model, table.targets)
    hint = f"did you mean {near!r}?" if near else "GET /v1/models lists what there is"
    return NoSuchModel(f"the model{told} does not exist; {hint}")


class Models:
    """The rules of the data listener. `access` gives what is in force; `is_open`: a key may be missing, or be anything.

    Clients of a listener that is open work for the default account unless their key says otherwise; a key that is known
    counts there as anywhere, one that was revoked too. `now` tells seconds since the epoch. `mark` is the gateway's
    (`routing.hops`).
    """

    def __init__(
        self, access: Callable[[], ModelAccess], now: Callable[[], float], *, is_open: bool, mark: bytes = b""
    ) -> None:
        self._access = access
        self._now = now
        self._is_open = is_open
        self.mark = mark

    def admit(self, head: RequestHead) -> Admitted:
        """Match a request by its head. Raises MalformedRequest, UnknownPath or InvalidKey."""
        return self.admitted(head, *self.known(head))

    def admitted(self, head: RequestHead, caller: Caller, table: ModelTable) -> Admitted:
        """The same for a sender who is known. Raises UnknownPath."""
        path, mark, query = head.target.partition("?")
        try:
            protocol = match_pattern(head.method, path, table.speaks)
        except NotInference:
            raise UnknownPath("there is no such path, or not with this method; see the paths under /v1") from None
        if protocol == P.MODEL_DISCOVERY:
            raise UnknownPath("a model's name has no such form")
        return _AdmittedModel(protocol, Target(path, mark + query), caller, table, self)

    def known(self, head: RequestHead) -> tuple[Caller, ModelTable]:
        """Who sent this head, and the routes that they may use.

        Raises MalformedRequest, LoopDetected, InvalidKey, AccountHalted, SourceNotAllowed, or ModelNotAuthorized for a
        key that may call none.
        """
        if not head.target.startswith("/") or "#" in head.target:
            raise MalformedRequest("request target is not a path")
        hops = head.values.get(_HOP)
        if hops is not None and self.mark and comes_back(hops, self.mark):
            raise LoopDetected("the request has been here before: a provider's base URL leads back to this gateway")
        digests = [digest_of(key) for key in _keys_of(head)]
        if len(digests) > 1 and not (self._is_open and self._access().keys.keys().isdisjoint(digests)):
            raise InvalidKey("two different keys were sent, as Authorization and as x-api-key; send one")
        digest = digests[0] if digests else b""
        return self.known_from(digest, head.peer)

    def known_from(self, digest: bytes, address: str) -> tuple[Caller, ModelTable]:
        """The same of whoever comes from an address. Raises SourceNotAllowed, and as `known_by`."""
        known = self.known_by(digest)
        entry = self._access().keys.get(digest)
        if entry is not None and entry.networks and not is_within(address, entry.networks):
            raise SourceNotAllowed("this key may not be used from this address; ask whoever runs this gateway")
        return known

    def known_by(self, digest: bytes) -> tuple[Caller, ModelTable]:
        """Whose key or token has this digest (none: empty), and the routes that they may use.

        Raises InvalidKey, AccountHalted, or ModelNotAuthorized for a key that may call none.
        """
        access = self._access()
        entry = access.keys.get(digest)
        if entry is None:
            if self._is_open:
                self.check_account(DEFAULT_ACCOUNT)
                return ANYBODY, self.of_account(DEFAULT_ACCOUNT)
            raise InvalidKey("a valid key is needed: send it as 'Authorization: Bearer KEY', or as x-api-key")
        if self._now() >= entry.valid_until:
            raise InvalidKey("this key was revoked or has expired; ask whoever runs this gateway for another")
        self.check_account(entry.caller.account)
        if not entry.may_infer:
            raise ModelNotAuthorized("this key may not call models; ask whoever runs this gateway for one that may")
        return entry.caller, entry.table

    def check_account(self, account: str) -> None:
        """Raises AccountHalted."""
        if account in self._access().halted:
            raise AccountHalted

    def of_account(self, account: str) -> ModelTable:
        """All routes of an account."""
        return self._access().accounts.get(account, NO_MODELS)

    def error_answer(
        self, error: RouterError, request_id: str, attempts: int, *, protocol: str, keep_alive: bool, route: str = ""
    ) -> bytes:
        """The dialect's own error object."""
        own, message = own_lines(request_id, attempts, route), told_of(error)
        own += _retry_lines(error)
        if protocol == P.MESSAGES:
            body = anthropic_error_body(error.status, message, request_id)
        else:
            kind = BudgetExhausted.code if isinstance(error, BudgetExhausted) else ""
            body = openai_error_body(error.status, message, getattr(error, "code", "") or None, kind)
        return json_answer(error.status, body, own, keep_alive=keep_alive)


def _retry_lines(error: RouterError) -> bytes:
    """When it may be tried again, and whether a library should do that by itself."""
    lines, may_retry = b"", not (isinstance(error, RunnerError) and not error.may_pass)
    if isinstance(error, NoProviderAvailable | BudgetExhausted | BudgetUncounted):
        may_retry = not isinstance(error, BudgetExhausted)
        if error.retry_after_seconds is not None:
            wait = max(1, ceil(error.retry_after_seconds))
            lines = b"retry-after: %d\r\n" % wait
            may_retry = may_retry and wait <= _LONGEST_WAIT
    return lines if may_retry else lines + _NO_RETRY


def _keys_of(head: RequestHead) -> list[str]:
    """What a client sent to be known by; two only where they differ."""
    sent = {bearer_of(head.values.get(b"authorization", b"").decode("latin-1"))}
    sent.add(head.values.get(b"x-api-key", b"").decode("latin-1").strip(" \t"))
    sent.discard("")
    return list(sent)
