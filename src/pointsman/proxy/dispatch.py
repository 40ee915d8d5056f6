"""From an admitted request to an answered one: pick a candidate, call it, relay, note what happened."""

import asyncio
from collections.abc import Callable, Mapping

from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import RouterError, UpstreamProtocol
from pointsman.core.limits import Limits
from pointsman.events.operation_log import OperationLog
from pointsman.events.record import Outcome, Record
from pointsman.proxy.call import Backend, Call, Response
from pointsman.proxy.candidate_cache import CandidateCache
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.relay import Relay
from pointsman.proxy.route_table import RouteTable
from pointsman.proxy.turns import Turns
from pointsman.routing.pattern import Target, match_pattern, read_target
from pointsman.routing.plan import select_candidate
from pointsman.wire.request import Request, RequestHead
from pointsman.wire.response import error_answer, error_body, redacted_head

REPLACED_BODIES = {401: error_body("unauthorized"), 403: error_body("forbidden")}
"""Providers echo pieces of keys in these (DESIGN 6.2)."""


_LARGE_BODY = 512 * 1024
"""Its check and its write take milliseconds; smaller ones don't wait for their turn."""


class Admitted:
    """What was decided from the head, and the bundle it was decided on."""

    __slots__ = ("bundle", "protocol", "target")

    def __init__(self, bundle: Bundle, protocol: str, target: Target) -> None:
        self.bundle = bundle
        self.protocol = protocol
        self.target = target


class Dispatcher:
    """Serves requests through the door: `inference.local`, direct routes."""

    def __init__(
        self,
        routes: RouteTable,
        backends: Mapping[str, Backend],
        log: OperationLog,
        limits: Limits,
        *,
        clock: Callable[[], float],
        request_ids: Callable[[], str],
    ) -> None:
        self._routes = routes
        self._backends = backends
        """By endpoint scheme."""
        self._log = log
        self._limits = limits
        self._clock = clock
        self._request_ids = request_ids
        self._turns = Turns()
        self._candidate_lines = CandidateCache(_candidate_lines)

    def admit(self, head: RequestHead) -> Admitted:
        """Match a request by its head. Raises MalformedRequest or NotInference."""
        target = read_target(head)
        bundle = self._routes.bundle
        return Admitted(bundle, match_pattern(head.method, target.path, bundle.routes), target)

    def refused(self, error: RouterError, head: RequestHead | None) -> bytes:
        """Note a request that was never served."""
        record = Record(self._request_ids(), self._log.now)
        if head is not None:
            record.method, record.path = head.method, head.target.partition("?")[0]
        record.outcome, record.status, record.detail = Outcome.REJECTED, error.status, error.detail
        self._log.append(record)
        return _own_lines(record.request_id, 0)

    async def serve(self, admitted: object, request: Request, client: ClientConnection) -> None:
        """Answer one request."""
        if not isinstance(admitted, Admitted):
            raise TypeError("serve takes what admit returned")
        started = self._clock()
        head = request.head
        record = Record(self._request_ids(), self._log.now, head.method, admitted.target.path)
        record.protocol = admitted.protocol
        record.received = len(request.body)
        try:
            await self._call(admitted, request, client, record)
        except RouterError as error:
            self._answer_error(error, client, record)
        except asyncio.CancelledError:
            if record.outcome is not Outcome.COMPLETED or not record.heard_out:
                record.outcome = Outcome.CANCELLED
            raise
        except Exception as error:
            # Nothing below is meant to raise anything else; the client is told as little as of a broken upstream.
            self._answer_error(UpstreamProtocol(f"internal error: {type(error).__name__}: {error}"), client, record)
        finally:
            record.seconds = self._clock() - started
            self._log.append(record)

    async def _call(self, admitted: Admitted, request: Request, client: ClientConnection, record: Record) -> None:
        candidate = select_candidate(admitted.bundle.routes, admitted.protocol)
        record.route, record.model = candidate.route, candidate.model
        record.provider_type, record.endpoint = candidate.provider_type, candidate.endpoint.authority
        head, target = request.head, admitted.target
        call = Call(candidate, admitted.protocol, head, target.path + target.query, request.body)
        if len(request.body) > _LARGE_BODY:
            await self._turns.wait()
        response = await self._backends[candidate.endpoint.scheme].open(call)
        try:
            await self._answer(response, candidate, head.minor, client, record)
        finally:
            response.close()

    async def _answer(
        self, response: Response, candidate: Candidate, minor: int, client: ClientConnection, record: Record
    ) -> None:
        record.status = response.head.status
        own = _own_lines(record.request_id, 1) + self._candidate_lines.get(candidate)
        replaced = REPLACED_BODIES.get(record.status)
        if replaced is not None:
            record.outcome, record.sent = Outcome.FAILED, len(replaced)
            record.detail = "the upstream refused the credential"
            secret = candidate.api_key
            head = redacted_head(response.head, own, secret, length=len(replaced), keep_alive=client.keep_alive)
            client.write(head + replaced)
            return
        relay = Relay(client, response.head, own, minor=minor, protocol=record.protocol, limits=self._limits)
        client.attach(response)
        try:
            truncated = await response.relay(relay)
            if truncated:
                relay.truncate(truncated)
                record.outcome, record.detail = Outcome.TRUNCATED, truncated
            elif record.status >= 400:
                record.outcome = Outcome.FAILED
        finally:
            record.sent = relay.sent
            # SDKs hang up on the last event, without waiting for the end of the body.
            record.heard_out = response.head.is_event_stream and relay.meter.finished()
            record.usage = relay.meter.usage()

    def _answer_error(self, error: RouterError, client: ClientConnection, record: Record) -> None:
        record.outcome, record.detail = Outcome.FAILED, error.detail
        if record.status:  # a head has gone out already
            client.cut(visibly=True)
            return
        record.status = error.status
        own = _own_lines(record.request_id, 1 if record.route else 0)
        client.write(error_answer(error, own, keep_alive=client.keep_alive))


def _candidate_lines(candidate: Candidate) -> bytes:
    lines = f"x-pointsman-route: {_safe(candidate.route)}\r\nx-pointsman-model: {_safe(candidate.model)}\r\n"
    if candidate.endpoint.scheme == "mock":
        lines += "x-pointsman-mock: true\r\n"
    return lines.encode("ascii")


def _own_lines(request_id: str, attempts: int) -> bytes:
    return b"x-pointsman-request-id: %b\r\nx-pointsman-attempts: %d\r\n" % (request_id.encode("ascii"), attempts)


def _safe(text: str) -> str:
    """A name as a header value: anything but visible ASCII and spaces is escaped."""
    return "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in text)
