"""Why a model stopped, in the word that an answer's body has for it. Where a body's ends are kept is a meter's."""

import re

from pointsman.core.protocols import InferenceProtocol as P

_WORD = re.compile(rb'\s*:\s*"([A-Za-z_]{1,32})"')
_KEYS: dict[str, bytes] = {
    P.CHAT_COMPLETIONS: b'"finish_reason"',
    P.COMPLETIONS: b'"finish_reason"',
    P.MESSAGES: b'"stop_reason"',
}
_LAST_TYPE = re.compile(rb'"type"\s*:\s*"response\.(completed|incomplete|failed)"')
_INCOMPLETE = re.compile(rb'"incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*"([A-Za-z_]{1,32})"')
_STATUS = re.compile(rb'"status"\s*:\s*"([a-z_]{1,32})"')
_UNDER_WAY = (b"in_progress", b"queued")
_TOLD_BYTES = 1024


def find_finish_reason(beginning: bytes, end: bytes, protocol: str) -> str:
    """The last word of a body in a dialect: `stop`, `tool_calls`, `end_turn`, `max_output_tokens`; empty for none.

    Of Responses: `completed`, or why it is not. What is no plain word is not taken, so that no text of an answer is.
    """
    if protocol == P.RESPONSES:
        return _of_responses(beginning, end)
    key = _KEYS.get(protocol)
    return "" if key is None else _last_word(end, key) or _last_word(beginning, key)


def last_event_of_responses(data: bytes) -> bytes:
    """The beginning of the last event, which may be far from its end; empty where it is not there."""
    found = _LAST_TYPE.search(data)
    return b"" if found is None else data[found.start() : found.start() + _TOLD_BYTES]


def _last_word(data: bytes, key: bytes) -> str:
    stop = len(data)
    while (at := data.rfind(key, 0, stop)) >= 0:
        if (found := _WORD.match(data, at + len(key))) is not None:
            return found[1].decode("ascii")
        stop = at  # null, as in all chunks but the last
    return ""


def _of_responses(beginning: bytes, end: bytes) -> str:
    last = _LAST_TYPE.search(end)
    status = last[1] if last is not None else b""
    if last is None:
        first = _STATUS.search(beginning)
        status = b"" if first is None or first[1] in _UNDER_WAY else first[1]
    if status in (b"", b"failed"):
        return status.decode("ascii")
    why = _INCOMPLETE.search(end) or _INCOMPLETE.search(beginning)
    return (status if why is None else why[1]).decode("ascii")
