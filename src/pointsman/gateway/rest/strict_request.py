"""A request whose body is read with a bound, a deadline and one meaning."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.requests import Request

from pointsman.core.account import ACCOUNT_FIELD
from pointsman.gateway.rest.refusals import BodyTooLarge, BodyTooSlow, MalformedBody, NotJson

MOST_KEYS = 1000
"""Of one JSON object. No right one has a tenth of it, and finding fault with each of 70,000 takes seconds."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of a request's body."""

    body_bytes: int = 1 << 20
    """A provider record at all of its limits has 800 KiB."""
    body_seconds: float = 30.0
    """From the head to the last byte."""


class StrictRequest(Request):
    """Read it by `load` first; afterwards `body` and `json` give what was read."""

    _raw = b""
    _value: Any = None

    async def load(self, limits: BodyLimits) -> None:
        """Raises NotJson, BodyTooLarge, BodyTooSlow or MalformedBody."""
        media, _, parameter = self.headers.get("content-type", "").partition(";")
        charset = parameter.strip().lower().replace('"', "")
        if media.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
            raise NotJson("send JSON in UTF-8, with content-type: application/json")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise NotJson("the body is encoded; send it without content-encoding")
        if int(self.headers.get("content-length", "0")) > limits.body_bytes:
            raise _too_large(limits)
        try:
            async with asyncio.timeout(limits.body_seconds):
                self._raw = await self._read(limits)
        except TimeoutError:
            raise BodyTooSlow(f"the body took over {limits.body_seconds:g} s; send it at once") from None
        self._value = _parsed(self._raw)

    async def _read(self, limits: BodyLimits) -> bytes:
        pieces = bytearray()
        async for piece in self.stream():
            pieces += piece
            if len(pieces) > limits.body_bytes:
                raise _too_large(limits)
        return bytes(pieces)

    async def body(self) -> bytes:
        """What was read."""
        return self._raw

    async def json(self) -> Any:
        """What it says."""
        return self._value

    def texts(self) -> Iterator[str]:
        """Every text of the request but its token: what an error must not repeat."""
        yield self.scope["path"]
        yield self.headers.get(ACCOUNT_FIELD, "")
        for pair in self.query_params.multi_items():
            yield from pair
        yield from _texts(self._value)


def _too_large(limits: BodyLimits) -> BodyTooLarge:
    return BodyTooLarge(f"the body has over {limits.body_bytes} bytes; send less at once")


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        # Not chained: a decoder's error holds the document.
        raise MalformedBody("the body is not valid JSON; check it with a JSON tool") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_KEYS:
        raise MalformedBody(f"a JSON object has {len(pairs)} keys; at most {MOST_KEYS}")
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedBody("a JSON object names one key twice; send each once")
    return found


def _constant(_: str) -> NoReturn:
    raise ValueError


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            pending += value.values()
        elif isinstance(value, list):
            pending += value
