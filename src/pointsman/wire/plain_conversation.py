"""Whether a request is a conversation of plain messages, each another, without tools: told sooner than by reading it.

Owns nothing of what a conversation is: whatever it lets pass, `conversation.read_conversation` understands, and finds
no call, no result and no tool in it, and no message twice. What it does not let pass may be anything.
"""

from collections.abc import Mapping
from typing import Any

from pointsman.core.protocols import InferenceProtocol as P

_NOT_PLAIN = frozenset(("tools", "tool_choice", "previous_response_id", "conversation", "prompt"))
_ROLES = frozenset(("system", "user", "assistant"))
_KEYS: Mapping[str, str] = {P.CHAT_COMPLETIONS: "messages", P.MESSAGES: "messages", P.RESPONSES: "input"}
_MEMBERS = {"role", "content"}
MOST_MEMBERS = 64
"""Of the request: the reader has a bound of its own, which is larger."""


def is_plain(request: Mapping[str, Any], protocol: str) -> bool:
    """`request`: a JSON object that names no member twice, from a body of at most 32 KiB."""
    key = _KEYS.get(protocol)
    messages = None if key is None else request.get(key)
    if type(messages) is not list or not _NOT_PLAIN.isdisjoint(request) or len(request) > MOST_MEMBERS:
        return False
    seen = set()
    for message in messages:
        if type(message) is not dict or message.keys() != _MEMBERS:
            return False
        role, content = message["role"], message["content"]
        if type(content) is not str or type(role) is not str or role not in _ROLES:
            return False
        seen.add((role, content))
    return len(seen) == len(messages)
