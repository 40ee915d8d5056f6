"""What a dispatcher asks of a backend, and what it gets."""

from dataclasses import dataclass
from typing import Protocol

from pointsman.core.candidate import Candidate
from pointsman.proxy.upstream.exchange import BodySink, Flow
from pointsman.wire.headers import Fields
from pointsman.wire.response import ResponseHead


@dataclass(slots=True)
class Call:
    """One attempt at one candidate. Not frozen: one is made per request, on the hot path."""

    candidate: Candidate
    protocol: str
    method: str
    path: str
    query: str
    fields: Fields
    body: bytes


class Response(Flow, Protocol):
    """An upstream's answer, its body still on the way."""

    @property
    def head(self) -> ResponseHead:
        """Status and fields."""

    async def relay(self, sink: BodySink) -> str:
        """Send the body into a sink. Returns why it was truncated, or an empty string."""

    def close(self) -> None:
        """Let go, at any time. Stops the upstream when the body has not ended."""


class Backend(Protocol):
    """Performs calls of one kind."""

    async def open(self, call: Call) -> Response:
        """Send the request and wait for the head. Raises RouterError."""
