"""The one attempt loop: a chain's plan, tried until somebody's answer is committed to, or nothing is left.

What an outcome means is `routing.outcome`'s, who comes next `routing.chain_plan`'s, who counts is the ledger's. Here
the bytes are sent, and what was reserved for an attempt that failed is given back (DESIGN section 5).
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from pointsman.config.secrets import SecretUnreadable
from pointsman.core.attempts import Chain, ErrorCategory, Member, Skipped
from pointsman.core.errors import UpstreamError
from pointsman.core.model_errors import NoProviderAvailable
from pointsman.core.quota import Counters, QuotaKey
from pointsman.events.record import Record
from pointsman.proxy.answering import Answering
from pointsman.proxy.call import Backend, Call, Response
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.ledger import LedgerUnavailable, QuotaLedger, Reservation
from pointsman.proxy.member_keys import MemberKeys
from pointsman.proxy.preview import Preview
from pointsman.proxy.relay import Collector, Relay
from pointsman.proxy.upstream.exchange import IDLE, BodySink
from pointsman.routing.chain_plan import earliest_recovery, exhausted, plan
from pointsman.routing.outcome import classify, may_retry, needs_body
from pointsman.routing.recovery import may_ask_again_at
from pointsman.routing.strategies import NO_STATE, StrategyState
from pointsman.wire.request import Request
from pointsman.wire.response import ResponseHead

_ERROR_BODY_SECONDS = 5.0


class Chains:
    """What all walks share. `now` tells seconds since the epoch, `rng` breaks ties."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        ledger: QuotaLedger,
        answering: Answering,
        *,
        now: Callable[[], float],
        rng: Random,
    ) -> None:
        self.backends = backends
        self.ledger = ledger
        self.answering = answering
        self.now = now
        self.rng = rng
        self.keys = MemberKeys()
        self._states: dict[tuple[str, str], StrategyState] = {}

    def state_of(self, chain: Chain) -> StrategyState:
        """What its strategy remembers now."""
        return self._states.get((chain.account, chain.name), NO_STATE)

    def planned(self, chain: Chain, protocol: str) -> tuple[list[Member], list[Skipped]]:
        """Whom to try, and whom not; the strategy is asked once."""
        now = self.now()

        def counters(member: Member) -> Counters:
            return self.ledger.counters(QuotaKey(chain.account, member.provider), member.quota, now)

        key = (chain.account, chain.name)
        made, self._states[key] = plan(chain, protocol, counters, now, self._states.get(key, NO_STATE), self.rng)
        return list(made.attempts), list(made.skipped)


class ChainWalk:
    """One request's way through a chain."""

    def __init__(self, chains: Chains, chain: Chain, client: ClientConnection, record: Record) -> None:
        self._chains = chains
        self._chain = chain
        self._client = client
        self._record = record
        self._skipped: list[Skipped] = []
        self._used = False
        """Whether the place that was reserved for this attempt counts."""

    async def run(self, request: Request, path: str) -> None:
        """Answer the request. Raises NoProviderAvailable when nothing is left."""
        attempts, self._skipped = self._chains.planned(self._chain, self._record.protocol)
        try:
            async with asyncio.timeout(self._chain.request_timeout_seconds) as patience:
                for place, member in enumerate(attempts):
                    call = Call(member.candidate, self._record.protocol, request.head, path, request.body)
                    if await self._try(member, call, patience, others=place + 1 < len(attempts)):
                        return
        except TimeoutError:
            if not patience.expired():
                raise
        until = earliest_recovery(self._skipped, self._chains.now())
        raise NoProviderAvailable(until - self._chains.now() if until is not None else None)

    async def _try(self, member: Member, call: Call, patience: asyncio.Timeout, *, others: bool) -> bool:
        """Whether the client has its answer now. One more try at once, where the outcome allows it."""
        for attempt in (1, 2):
            reservation = await self._reserve(member)
            if reservation is None:
                return False
            self._used = False
            try:
                failure, status = await self._attempt(member, call, patience, others=others)
            finally:
                if not self._used:
                    # Shielded: whoever goes away must not keep a place that was not used.
                    await asyncio.shield(self._chains.ledger.release(reservation))
            if failure is None:
                return True
            if not may_retry(failure, status, attempt):
                return False
        return False

    async def _reserve(self, member: Member) -> Reservation | None:
        ledger, now = self._chains.ledger, self._chains.now()
        key = QuotaKey(self._chain.account, member.provider)
        try:
            reservation = await ledger.reserve(key, member.quota, now)
        except LedgerUnavailable as error:
            # What cannot be counted is not sent: a quota that is overrun can cost money, an answer that is late cannot.
            self._record.detail = f"the quota of {member.provider} cannot be counted: {error}"
            self._skipped.append(Skipped(member.provider, "uncounted"))
            return None
        if reservation is None:
            reason = exhausted(member, ledger.counters(key, member.quota, now), now)
            self._skipped.append(reason or Skipped(member.provider, "exhausted"))
        return reservation

    async def _attempt(
        self, member: Member, call: Call, patience: asyncio.Timeout, *, others: bool
    ) -> tuple[ErrorCategory | None, int]:
        """What came of it (None: the client has its answer), and the status; 0 where none came."""
        record = self._record
        record.candidate = member.candidate
        record.is_fallback = member is self._chain.fallback
        try:
            call.candidate = self._chains.keys.candidate(member)
        except SecretUnreadable as error:
            record.detail = str(error)
            self._skipped.append(Skipped(member.provider, "auth_error"))
            return ErrorCategory.AUTH_ERROR, 0
        record.candidate = call.candidate
        record.attempts += 1
        try:
            response = await self._chains.backends[call.candidate.endpoint.scheme].open(call)
        except UpstreamError as error:
            record.detail = error.detail
            return ErrorCategory.SERVER_ERROR, 0
        try:
            status = response.head.status
            if not 200 <= status <= 299:
                return await self._failed(response, member, call, patience)
            self._used = True  # as the upstream counts it, even if the client goes away now
            if others and response.head.is_event_stream:
                return await self._look_first(response, member, call, patience)
            await self._commit(response, member, call, patience)
            return None, status
        finally:
            response.close()

    async def _commit(self, response: Response, member: Member, call: Call, patience: asyncio.Timeout) -> None:
        patience.reschedule(None)
        minor = call.head.minor
        await self._chains.answering.answer(response, call.candidate, minor, self._client, self._record)

    async def _look_first(
        self, response: Response, member: Member, call: Call, patience: asyncio.Timeout
    ) -> tuple[ErrorCategory | None, int]:
        """A stream that begins with an error, or ends before it has begun, was no answer."""
        answering, record = self._chains.answering, self._record

        def commit() -> Relay:
            patience.reschedule(None)
            return answering.commit(response, call.candidate, call.head.minor, self._client, record)

        preview = Preview(commit, response.abandon)
        try:
            truncated = await response.relay(preview)
            if preview.relay is None:
                self._used = False
                record.detail = "the event stream began with an error, or ended before its first event"
                return ErrorCategory.SERVER_ERROR, 0
            answering.ended(response, preview.relay, truncated, record)
            return None, response.head.status
        finally:
            if preview.relay is not None:
                answering.note(response, preview.relay, record)

    async def _failed(
        self, response: Response, member: Member, call: Call, patience: asyncio.Timeout
    ) -> tuple[ErrorCategory | None, int]:
        """An answer that is no success: the client's if the request is at fault, else a reason to go on."""
        status, body = response.head.status, b""
        if needs_body(status, member):
            response = await _read_whole(response)
            body = response.body
        category = classify(status, body, member)
        if category is None or category is ErrorCategory.REQUEST_REJECTED:
            await self._commit(response, member, call, patience)
            return None, status
        if category is ErrorCategory.RATE_LIMIT:
            now = self._chains.now()
            until = may_ask_again_at(response.head.fields, member.quota, now)
            await self._chains.ledger.exhaust(QuotaKey(self._chain.account, member.provider), until, now)
            self._skipped.append(Skipped(member.provider, "exhausted", until))
        return category, status


class _Whole:
    """An answer that has been read, to be told apart by its body, and may still be the client's."""

    def __init__(self, head: ResponseHead, body: bytes, truncated: str) -> None:
        self.head = head
        self.body = body
        self._truncated = truncated

    async def relay(self, sink: BodySink) -> str:
        """All that came."""
        sink.body(self.body, last=not self._truncated)
        return self._truncated

    def pause(self) -> None:
        """Nothing is on the way."""

    def resume(self) -> None:
        """Nothing is on the way."""

    def abandon(self) -> None:
        """Nothing is on the way."""

    def close(self) -> None:
        """It is whoever read it that lets go."""


async def _read_whole(response: Response) -> _Whole:
    collector = Collector()
    try:
        async with asyncio.timeout(_ERROR_BODY_SECONDS):
            truncated = await response.relay(collector)
    except TimeoutError:
        truncated = IDLE
    return _Whole(response.head, collector.value(), truncated)
