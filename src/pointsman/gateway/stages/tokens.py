"""What tokens a request of the data listener came to, for whoever counts them: budgets, usage rows."""

from pointsman.core.event_kinds import INFER_COMPLETED
from pointsman.core.price import Tokens
from pointsman.core.protocols import InferenceProtocol
from pointsman.events.record import Record
from pointsman.routing.tokens_used import has_used, is_counting


def tokens_of(record: Record) -> Tokens | None:
    """Noted once, so that all count the same. None for what was never sent, what was refused, and what uses none.

    Once the request has ended. An upstream whose client went away before it had answered, or was sent away since its
    account is halted, has the prompt all the same; one whose answer a rule has refused has all of its work.
    """
    notes = record.notes
    if notes is not None and notes.tokens is not None:
        return notes.tokens
    if not record.was_sent and not (record.is_answered and record.status < 300):
        return None
    if record.protocol == InferenceProtocol.MODEL_DISCOVERY or is_counting(record.path):
        return None
    tokens = _reckoned(record)
    if notes is not None:
        notes.tokens = tokens
    return tokens


def _reckoned(record: Record) -> Tokens:
    record.settle()
    return has_used(
        record.usage,
        record.received,
        max(record.sent, record.came),
        protocol=record.protocol,
        is_stream=record.is_stream,
        is_whole=record.kind is INFER_COMPLETED or record.has_finished,
    )
