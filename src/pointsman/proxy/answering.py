"""An upstream's answer on its way to the client: our header lines, the relay, and how it went.

From the first byte that is written here there is no other answer any more (commit).
"""

import asyncio
import contextlib
from http import HTTPStatus

from pointsman.core.candidate import Candidate
from pointsman.core.candidate_cache import CandidateCache
from pointsman.core.event_kinds import INFER_FAILED
from pointsman.core.limits import Limits
from pointsman.core.model_errors import PolicyBlocked
from pointsman.events.record import Record
from pointsman.proxy.answer_searches import AnswerSearches
from pointsman.proxy.brakes import Brake
from pointsman.proxy.call import Response
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.filtered_relay import BLOCKED, FilteredRelay, Surroundings
from pointsman.proxy.relay import Collector, Relay
from pointsman.proxy.stages import OnAnswer
from pointsman.wire.engine_error import engine_error_body
from pointsman.wire.response import error_body, header_text, own_lines, own_lines_of_two, redacted_head

REPLACED_BODIES = {401: error_body("unauthorized"), 403: error_body("forbidden")}
"""Providers echo pieces of keys in these (DESIGN 6.2)."""


class Answering:
    """Writes answers. Stateless but for what is derived from candidates once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.response_policy: OnAnswer | None = None
        """What an answer's body goes through; None: nothing."""
        self._searches = AnswerSearches()
        self._lines = CandidateCache(_candidate_lines)

    async def answer(
        self, response: Response, candidate: Candidate, minor: int, client: ClientConnection, record: Record
    ) -> None:
        """Relay a whole answer, whatever its status."""
        status = response.head.status
        replaced = REPLACED_BODIES.get(status)
        if replaced is not None and not _is_gateways_own_403(response, candidate):
            self._replace(replaced, response, candidate, client, record)
            record.detail = "the upstream refused the credential"
            return
        if candidate.endpoint.scheme == "gguf" and status >= 400:
            body = await self._read_error(response)
            if record.notes is not None and record.notes.hashes is not None:
                record.notes.hashes.come(body)
            told = engine_error_body(record.protocol, status, body, record.request_id)
            self._replace(told, response, candidate, client, record)
            return
        relay = self.commit(response, candidate, minor, client, record)
        try:
            await self.ended(relay, await response.relay(relay), record)
        finally:
            self.note(response, relay, record)

    async def _read_error(self, response: Response) -> bytes:
        """Of our own engine's, what comes in time: its errors are a line long."""
        collector = Collector()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.error_body_seconds):
                await response.relay(collector)
        return collector.value()

    def _replace(
        self, body: bytes, response: Response, candidate: Candidate, client: ClientConnection, record: Record
    ) -> None:
        """Answer with the upstream's status and a JSON body of ours."""
        own = self._begin(response, candidate, record)
        record.answered(record.status)
        record.sent = len(body)
        if record.notes is not None and record.notes.hashes is not None:
            record.notes.hashes.hand(body)
        secret = candidate.api_key
        head = redacted_head(response.head, own, secret, length=len(body), keep_alive=client.keep_alive)
        client.write(head + body)

    def commit(
        self, response: Response, candidate: Candidate, minor: int, client: ClientConnection, record: Record
    ) -> Relay:
        """What the body goes into from now on."""
        head, policy = response.head, self.response_policy
        body_filter = policy(record, head) if policy is not None else None
        own = self._begin(response, candidate, record)
        operation = record.operation
        begun = operation.stream_started if head.is_event_stream and operation is not None else _nothing
        kind = Relay if body_filter is None else FilteredRelay
        relay = kind(client, head, own, minor=minor, protocol=record.protocol, limits=self.limits)
        if isinstance(relay, FilteredRelay) and body_filter is not None:
            by_client, by_search = Brake.two_of(response)
            around = Surroundings(self._searches, response.abandon, by_search, client.hold_answer, begun)
            relay.filter(body_filter, around)
            client.attach(by_client)
        else:
            begun()
            client.attach(response)
        if record.notes is not None:
            relay.hashes = record.notes.hashes
        return relay

    def _begin(self, response: Response, candidate: Candidate, record: Record) -> bytes:
        record.status, record.is_answered = response.head.status, True
        record.answer_fields = response.head.fields
        own = own_lines(record.request_id, record.attempts) + self._lines.get(candidate)
        if record.notes is not None:
            own += record.notes.own_lines
        if record.is_fallback and candidate.endpoint.scheme == "gguf":
            own += b"x-pointsman-fallback: local\r\n"
        if response.head.ours and candidate.is_own_gateway:
            own = own_lines_of_two(own, response.head)
        return own

    async def ended(self, relay: Relay, truncated: str, record: Record) -> None:
        """No more of the body will come: it was cut if there is a reason. Raises PolicyBlocked."""
        if isinstance(relay, FilteredRelay):
            await relay.searched(is_cut=bool(truncated))
        if truncated and not relay.refused:
            relay.truncate(truncated)
            if not relay.refused:
                record.truncate(truncated)
                return
        if relay.refused:
            _refuse(relay, record)

    def note(self, response: Response, relay: Relay, record: Record) -> None:
        """Note what went through, on every exit; what was stopped from outside ends here for the client too."""
        if record.stopped and not relay.ended and not relay.last_event_passed():
            relay.truncate(record.stopped)
            if relay.refused:
                relay.truncate(BLOCKED)
        if isinstance(relay, FilteredRelay):
            record.came = relay.came
            relay.let_go()
        record.sent = relay.sent
        record.meter = relay.meter
        record.is_stream = streams = response.head.is_event_stream
        if relay.ended:
            record.answered(record.status, unfinished=streams and not relay.meter.finished())
        # SDKs hang up on the last event, without waiting for the end of the body; others on its end, before we look up.
        record.heard_out = relay.ended or (streams and relay.last_event_passed())


def _nothing() -> None:
    """Nobody is told."""


def _refuse(relay: Relay, record: Record) -> None:
    """A rule has ended an answer. Raises PolicyBlocked where nothing of it was handed on."""
    error = PolicyBlocked(relay.refused)
    if not relay.has_begun:
        record.status, record.is_answered, record.was_sent = 0, False, True
        raise error
    relay.truncate(BLOCKED)
    record.kind, record.reason, record.detail = INFER_FAILED, BLOCKED, relay.refused


def _is_gateways_own_403(response: Response, candidate: Candidate) -> bool:
    """It says which route or model is not allowed, and holds nothing of a provider's: those bodies it has replaced."""
    return response.head.status == HTTPStatus.FORBIDDEN and candidate.is_own_gateway and bool(response.head.ours)


def _candidate_lines(candidate: Candidate) -> bytes:
    route, model = header_text(candidate.route), header_text(candidate.model)
    lines = b"x-pointsman-route: %b\r\nx-pointsman-model: %b\r\n" % (route, model)
    return lines + b"x-pointsman-mock: true\r\n" if candidate.endpoint.scheme == "mock" else lines
