"""What a gateway does around each request of its data listener, in the order of DESIGN section 5.

usage_open, receipt_open, authorize, budget_reserve, request_policy, context, then the attempts, then response_policy,
budget_settle, audit, receipt, usage_record. Owns the order and that each is asked once; what a stage does is whoever's
composes the gateway. The door has none.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from pointsman.core.errors import MalformedRequest
from pointsman.core.model_table import Target
from pointsman.events.record import Record, StageNotes
from pointsman.wire.json_strings import Document, read_document
from pointsman.wire.request import Request
from pointsman.wire.response import ResponseHead

LARGEST_SHARED = 32 * 1024
"""Bytes of a body that is read on the event loop, whole; of a larger one each stage reads what it needs, elsewhere."""


class BodyFilter(Protocol):
    """Sees an answer's body on its way to the client, and may change it. Sans I/O; used by one thread at a time."""

    holds: bool
    """Whether anything may wait in it, or be refused; else it only looks."""

    @property
    def held(self) -> int:
        """Bytes that it has in memory, about."""

    def work(self, data: bytes, *, last: bool) -> int:
        """What it may take to receive that, and `last` to finish: bytes times open steps of patterns, about."""

    def receive(self, data: bytes) -> bytes:
        """What may go on now of all that came; the rest is held, within the filter's bound. Raises Blocked."""

    def finish(self, *, is_whole: bool = True) -> bytes:
        """The body has ended, or (not `is_whole`) was cut: what was held and may go on. Raises Blocked."""


class Passage:
    """One request on its way through the stages. Not a dataclass: one is made per request, on the hot path."""

    __slots__ = ("_document", "_read", "body", "notes", "record", "request", "target", "wants_plain_answer")

    def __init__(self, request: Request, record: Record, target: Target) -> None:
        self.request = request
        """As the client sent it."""
        self.record = record
        self.target = target
        self.body = request.body
        """What is sent on: a stage may put another in its place, whole, and says so in the notes."""
        self.notes = record.notes = StageNotes()
        self.wants_plain_answer = False
        """Whether the upstream is asked for an answer without a content coding."""
        self._read = b""
        self._document: Document | None = None

    @property
    def document(self) -> Document | None:
        """The body, read once for all stages; None where it is large, or no JSON object that has one reading only."""
        if self._read is not self.body:
            self._read, self._document = self.body, _document(self.body)
        return self._document


def _document(body: bytes) -> Document | None:
    if len(body) > LARGEST_SHARED:
        return None
    try:
        document = read_document(body)
    except MalformedRequest:
        return None
    return document if type(document.value) is dict else None


Before = Callable[[Passage], Awaitable[None]]
"""Asked when the route is known and nothing was sent. Raises RouterError to refuse; then no later one is asked."""
OnAnswer = Callable[[Record, ResponseHead], BodyFilter | None]
"""Asked when an answer is about to be the client's: what its body goes through. Must not wait."""
After = Callable[[Record], None]
"""Told once per request of how it went, on every exit, refusals and cancellation included. Must not raise or wait."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Those that there are; None costs nothing. A route's own authorization, by key or token, comes before all."""

    authorize: Before | None = None
    budget_reserve: Before | None = None
    request_policy: Before | None = None
    context: Before | None = None
    response_policy: OnAnswer | None = None
    budget_settle: After | None = None
    audit: After | None = None
    receipt: After | None = None
    usage_record: After | None = None
    receipt_open: Before | None = None
    """Before those: what they refuse has a receipt too."""
    usage_open: Before | None = None
    """Before all others, and it refuses nothing: what begins has an end, of which `usage_record` is told."""

    @property
    def before(self) -> tuple[Before, ...]:
        """What stands before the attempts, in order."""
        first = (self.usage_open, self.receipt_open, self.authorize)
        stages = (*first, self.budget_reserve, self.request_policy, self.context)
        return tuple(stage for stage in stages if stage is not None)

    @property
    def after(self) -> tuple[After, ...]:
        """What stands behind them, in order."""
        stages = (self.budget_settle, self.audit, self.receipt, self.usage_record)
        return tuple(stage for stage in stages if stage is not None)


NO_STAGES = Stages()
