"""Whether a small body is a conversation of plain messages, without tools: told sooner than by reading it.

Owns nothing of what a conversation is: whatever it lets pass, `read_conversation` understands, and finds no call, no
result and no tool in it. What it does not let pass may be anything.
"""

from typing import Literal

import msgspec

from pointsman.core.protocols import InferenceProtocol as P

MOST_BYTES = 32 * 1024
"""Of a body that is looked at: the checks of larger ones are `read_conversation`'s."""
MOST_MEMBERS = 64
_NOT_PLAIN = frozenset(("tools", "tool_choice", "previous_response_id", "conversation", "prompt"))


class _ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str
    type: Literal["message"] = "message"


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_Decoder = (
    msgspec.json.Decoder[list[_ChatMessage]] | msgspec.json.Decoder[list[_Message]] | msgspec.json.Decoder[list[_Item]]
)
_READ: dict[str, tuple[str, _Decoder]] = {
    P.CHAT_COMPLETIONS: ("messages", msgspec.json.Decoder(list[_ChatMessage])),
    P.MESSAGES: ("messages", msgspec.json.Decoder(list[_Message])),
    P.RESPONSES: ("input", msgspec.json.Decoder(list[_Item])),
}


def plain_messages(body: bytes, protocol: str) -> list[bytes] | None:
    """The messages as they are written; None for all that is not told at once."""
    read = _READ.get(protocol)
    if read is None or len(body) > MOST_BYTES:
        return None
    key, decoder = read
    try:
        if not body.isascii():
            body.decode("utf-8")  # strings that are skipped are not looked at
        fields = _members.decode(body)
        if key not in fields or not _NOT_PLAIN.isdisjoint(fields) or not _are_named_once(body, fields):
            return None
        written = fields[key]
        decoder.decode(written)
        return [bytes(each) for each in _raws.decode(written)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _are_named_once(body: bytes, fields: dict[str, msgspec.Raw]) -> bool:
    """Of two of a name one is in no value, so that its colon is left over."""
    if len(fields) > MOST_MEMBERS:
        return False
    return body.count(b":") == len(fields) + b"".join(fields.values()).count(b":")
