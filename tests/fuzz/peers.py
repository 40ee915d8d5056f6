"""What a second, independent reader makes of the same bytes: llhttp for HTTP, the standard library for JSON."""

import contextlib
import json
import re
from typing import Any

import httptools

_KNOWN_METHODS = frozenset({b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"})
_METHOD = re.compile(rb"\A[^ ]+")


class Reading:
    """One request as llhttp reads it."""

    def __init__(self, data: bytes) -> None:
        self.url = b""
        self.body = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.messages = 0
        self.keep_alive = False
        self._parser = httptools.HttpRequestParser(self)
        method = _METHOD.match(data)
        assert method is not None
        self.method = method[0]
        # llhttp knows a list of methods and refuses all others; which one it is has no part in framing.
        if self.method not in _KNOWN_METHODS:
            data = b"POST" + data[len(self.method) :]
        # The error comes behind a whole request that offers an upgrade, or is a CONNECT.
        with contextlib.suppress(httptools.HttpParserUpgrade):
            self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.strip(b" \t")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1
        self.keep_alive = bool(self._parser.should_keep_alive())  # right only here

    def field(self, name: bytes) -> bytes:
        return next((value for key, value in self.fields if key.lower() == name), b"")


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order and duplicates kept."""


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def read_json(text: str) -> Any:
    """Strict JSON; objects as Pairs, numbers as they are spelled. Raises ValueError or RecursionError."""
    return json.loads(
        text, object_pairs_hook=Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant
    )


class _Number(str):
    """A number's own spelling, unequal to a string of the same characters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def has_lone_surrogate(value: Any) -> bool:
    """Whether any key or string of a value holds half a character."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, Pairs):
            pending += [part for pair in each for part in pair]
        elif isinstance(each, list):
            pending += each
        elif isinstance(each, str) and any("\ud800" <= character <= "\udfff" for character in each):
            return True
    return False
