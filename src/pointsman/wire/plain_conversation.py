"""Whether a request is a conversation of plain messages, without tools: told sooner than by reading it.

Owns nothing of what a conversation is: whatever it lets pass, `read_conversation` understands, and finds no call, no
result and no tool in it. What it does not let pass may be anything.
"""

from typing import Literal

import msgspec

from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.named_once import Members

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


_raws = msgspec.json.Decoder(list[msgspec.Raw])
_Decoder = (
    msgspec.json.Decoder[list[_ChatMessage]] | msgspec.json.Decoder[list[_Message]] | msgspec.json.Decoder[list[_Item]]
)
_READ: dict[str, tuple[str, _Decoder]] = {
    P.CHAT_COMPLETIONS: ("messages", msgspec.json.Decoder(list[_ChatMessage])),
    P.MESSAGES: ("messages", msgspec.json.Decoder(list[_Message])),
    P.RESPONSES: ("input", msgspec.json.Decoder(list[_Item])),
}


def plain_messages(members: Members, protocol: str) -> list[bytes] | None:
    """The messages of a request with these members, as they are written; None for all that is not told at once."""
    read = _READ.get(protocol)
    if read is None or not _NOT_PLAIN.isdisjoint(members):
        return None
    key, decoder = read
    try:
        written = members[key]
        decoder.decode(written)
        return [bytes(each) for each in _raws.decode(written)]
    except (KeyError, msgspec.DecodeError, RecursionError):
        return None
