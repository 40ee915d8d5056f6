"""What a dispatcher asks of a backend, and what it gets."""

from typing import Protocol

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.candidate import Candidate
from pointsman.core.runner_model import RunnerModel
from pointsman.proxy.upstream.exchange import BodySink, Flow
from pointsman.wire.json_model import Place, find_model
from pointsman.wire.request import RequestHead
from pointsman.wire.response import ResponseHead


class Call:
    """What is asked, and of whom: a chain asks one after the other. Not a dataclass: one is made per request, on the
    hot path."""

    __slots__ = (
        "_place",
        "body",
        "candidate",
        "hashes",
        "head",
        "is_sent",
        "keeps_model",
        "path",
        "protocol",
        "runner_model",
    )

    def __init__(self, candidate: Candidate, protocol: str, head: RequestHead, path: str, body: bytes) -> None:
        self.candidate = candidate
        self.protocol = protocol
        self.head = head
        """The client's: method and header fields."""
        self.path = path
        """With the query, as sent."""
        self.body = body
        self.keeps_model = False
        """Whether the body names the candidate's model already, and is sent as it is."""
        self.is_sent = False
        """Whether somebody may have got it, in the attempt that is made now."""
        self.runner_model: RunnerModel | None = None
        """Of a candidate that is reached through a runner."""
        self.hashes: BodyHashes | None = None
        """Whoever sends a body says so here, if anybody asks."""
        self._place: Place | None = None

    def place_of_model(self, key_limit: int) -> Place:
        """Where the body's model belongs, whoever is asked. Raises MalformedRequest for a body that has no such place.

        It is searched once: later attempts would hold the loop for as long again, several at a time.
        """
        place = self._place
        if place is None:
            place = self._place = find_model(self.body, key_limit)
        return place


class Response(Flow, Protocol):
    """An upstream's answer, its body still on the way."""

    @property
    def head(self) -> ResponseHead:
        """Status and fields."""

    async def relay(self, sink: BodySink) -> str:
        """Send the body into a sink. Returns why it was truncated, or an empty string."""

    def abandon(self) -> None:
        """Called by a sink that wants no more: `relay` returns, and the upstream is stopped."""

    def close(self) -> None:
        """Let go, at any time. Stops the upstream when the body has not ended."""


class Backend(Protocol):
    """Performs calls of one kind."""

    async def open(self, call: Call) -> Response:
        """Send the request and wait for the head. Raises RouterError."""
