"""How the gateway's data listener takes requests in: `model` names a route, in the dialects of OpenAI and Anthropic."""

from collections.abc import Callable
from math import ceil

from pointsman.config.wording import nearest
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.attempts import Chain, Member
from pointsman.core.caller import ANYBODY, Caller
from pointsman.core.candidate import Candidate
from pointsman.core.data_key import INFERENCE
from pointsman.core.errors import MalformedRequest, NoCompatibleRoute, NotInference, RouterError
from pointsman.core.model_errors import InvalidKey, ListenerError, NoProviderAvailable, NoSuchModel, UnknownPath
from pointsman.core.model_table import NO_MODELS, ModelAccess, ModelTable
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.token_digest import digest_of
from pointsman.proxy.reception import Admitted
from pointsman.routing.pattern import Target, match_pattern
from pointsman.wire.anthropic_error import anthropic_error_body
from pointsman.wire.json_model import read_model
from pointsman.wire.openai_error import openai_error_body
from pointsman.wire.request import RequestHead
from pointsman.wire.response import json_answer, own_lines

_LONGEST_TOLD = 64
"""Characters of a model's name that are repeated to whoever sent it."""


class _AdmittedModel(Admitted):
    """Holds the table that it was decided on."""

    __slots__ = ("_table",)

    def __init__(self, protocol: str, target: Target, caller: Caller, table: ModelTable) -> None:
        super().__init__(protocol, target, caller)
        self._table = table

    def choose(self, body: bytes) -> Candidate | Member | Chain:
        model = read_model(body)
        found = self._table.find(model)
        if found is None:
            raise no_such_model(model, self._table)
        if not found.speaks(self.protocol):
            raise NoCompatibleRoute(f"model {model} does not speak {self.protocol}")
        return found


def no_such_model(model: str | None, table: ModelTable) -> NoSuchModel:
    """What to say of a model that leads nowhere."""
    if model is None:
        return NoSuchModel('the request names no model; put a route\'s name into "model"')
    told = f" {model!r}" if len(model) <= _LONGEST_TOLD and model.isprintable() else ""
    near = nearest(model, table.targets)
    hint = f"did you mean {near!r}?" if near else "GET /v1/models lists what there is"
    return NoSuchModel(f"the model{told} does not exist; {hint}")


class Models:
    """The rules of the data listener. `access` gives what is in force; `is_open`: a key may be missing, or be anything.

    Clients of a listener that is open work for the default account unless their key says otherwise. `now` tells seconds
    since the epoch.
    """

    def __init__(self, access: Callable[[], ModelAccess], now: Callable[[], float], *, is_open: bool) -> None:
        self._access = access
        self._now = now
        self._is_open = is_open

    def admit(self, head: RequestHead) -> Admitted:
        """Match a request by its head. Raises MalformedRequest, UnknownPath or InvalidKey."""
        caller, table = self.known(head)
        path, mark, query = head.target.partition("?")
        try:
            protocol = match_pattern(head.method, path, table.speaks)
        except NotInference:
            raise UnknownPath("there is no such path, or not with this method; see the paths under /v1") from None
        if protocol == P.MODEL_DISCOVERY:
            raise UnknownPath("a model's name has no such form")
        return _AdmittedModel(protocol, Target(path, mark + query), caller, table)

    def known(self, head: RequestHead) -> tuple[Caller, ModelTable]:
        """Who sent this head, and the routes that they may use. Raises MalformedRequest or InvalidKey."""
        if not head.target.startswith("/") or "#" in head.target:
            raise MalformedRequest("request target is not a path")
        access = self._access()
        key = _key_of(head)
        known, table = access.keys.get(digest_of(key), (None, NO_MODELS)) if key else (None, NO_MODELS)
        if known is not None and known.is_valid(self._now()) and known.permits(INFERENCE):
            return Caller(known.account, known.name), table
        if not self._is_open:
            raise InvalidKey("a valid key is needed: send it as 'Authorization: Bearer KEY', or as x-api-key")
        return ANYBODY, access.accounts.get(DEFAULT_ACCOUNT, NO_MODELS)

    def error_answer(
        self, error: RouterError, request_id: str, attempts: int, *, protocol: str, keep_alive: bool
    ) -> bytes:
        """The dialect's own error object."""
        own, message = own_lines(request_id, attempts), error.text
        if isinstance(error, ListenerError | NoProviderAvailable):
            message = error.told
        if isinstance(error, NoProviderAvailable) and error.retry_after_seconds is not None:
            own += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after_seconds))
        if protocol == P.MESSAGES:
            body = anthropic_error_body(error.status, message, request_id)
        else:
            body = openai_error_body(error.status, message, getattr(error, "code", "") or None)
        return json_answer(error.status, body, own, keep_alive=keep_alive)


def _key_of(head: RequestHead) -> str:
    """What a client sent to be known by; nothing when it sent none, or two that differ."""
    scheme, _, bearer = head.values.get(b"authorization", b"").partition(b" ")
    sent = {bearer.strip()} if scheme.lower() == b"bearer" else set()
    sent.add(head.values.get(b"x-api-key", b"").strip())
    sent.discard(b"")
    return sent.pop().decode("latin-1") if len(sent) == 1 else ""
