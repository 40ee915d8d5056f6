"""How the gateway's data listener takes requests in: `model` names a route, in the dialects of OpenAI and Anthropic."""

from collections.abc import Callable
from math import ceil

from pointsman.config.wording import nearest
from pointsman.core.attempts import Chain
from pointsman.core.candidate import Candidate
from pointsman.core.errors import MalformedRequest, NoCompatibleRoute, NotInference, RouterError
from pointsman.core.model_errors import InvalidKey, ListenerError, NoProviderAvailable, NoSuchModel, UnknownPath
from pointsman.core.model_table import ModelTable
from pointsman.core.protocols import InferenceProtocol as P
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

    def __init__(self, protocol: str, target: Target, table: ModelTable) -> None:
        super().__init__(protocol, target)
        self._table = table

    def choose(self, body: bytes) -> Candidate | Chain:
        model = read_model(body)
        found = self._table.find(model)
        if found is None:
            raise no_such_model(model, self._table)
        if self.protocol not in found.protocols:
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
    """The rules of the data listener. `table` gives the current one; `is_open`: nobody is asked for a key."""

    def __init__(self, table: Callable[[], ModelTable], *, is_open: bool) -> None:
        self._table = table
        self._is_open = is_open

    def admit(self, head: RequestHead) -> Admitted:
        """Match a request by its head. Raises MalformedRequest, UnknownPath or InvalidKey."""
        table = self.table_for(head)
        path, mark, query = head.target.partition("?")
        try:
            protocol = match_pattern(head.method, path, table.protocols.__contains__)
        except NotInference:
            raise UnknownPath("there is no such path, or not with this method; see the paths under /v1") from None
        if protocol == P.MODEL_DISCOVERY:
            raise UnknownPath("a model's name has no such form")
        return _AdmittedModel(protocol, Target(path, mark + query), table)

    def table_for(self, head: RequestHead) -> ModelTable:
        """The routes of whoever sent this head. Raises MalformedRequest or InvalidKey."""
        if not head.target.startswith("/") or "#" in head.target:
            raise MalformedRequest("request target is not a path")
        if not self._is_open:
            raise InvalidKey("this listener serves models to nobody yet: keys are not there in this version")
        return self._table()

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
