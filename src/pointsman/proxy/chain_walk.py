"""The one attempt loop: a chain's plan, tried until somebody's answer is committed to, or nothing is left.

What an outcome means is `routing.outcome`'s, who comes next `routing.chain_plan`'s, who counts is the ledger's. Here
the bytes are sent, and what was reserved for an attempt that failed is given back (DESIGN section 5).
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import zip_longest
from random import Random

from pointsman.config.secrets import SecretUnreadable
from pointsman.core.attempts import Chain, ErrorCategory, Member, Plan, Skipped
from pointsman.core.errors import UpstreamError
from pointsman.core.model_errors import NoProviderAvailable
from pointsman.core.quota import Counters, QuotaKey
from pointsman.events.operations_record import Operation
from pointsman.events.reasons import reason_of_status
from pointsman.events.record import Record
from pointsman.proxy.answering import Answering
from pointsman.proxy.call import Backend, Call, Response
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.deadline import Deadline
from pointsman.proxy.error_answer import ErrorBody
from pointsman.proxy.forwarded_models import ForwardedModels, model_to_forward
from pointsman.proxy.ledger import LedgerUnavailable, QuotaLedger, Reservation
from pointsman.proxy.member_keys import MemberKeys
from pointsman.proxy.preview import Preview
from pointsman.proxy.relay import Relay
from pointsman.proxy.upstream.exchange import IDLE
from pointsman.routing.chain_plan import earliest_recovery, exhausted, plan
from pointsman.routing.first_event import FirstEvent
from pointsman.routing.outcome import classify, may_retry, needs_body
from pointsman.routing.recovery import SHORTEST_WAIT, may_ask_again_at
from pointsman.routing.strategies import NO_STATE, StrategyState
from pointsman.wire.request import Request

_FORWARDED_SCHEMES = ("http", "https")
"""Who is sent the client's model where a chain forwards it; what answers here itself keeps its own name."""


class Chains:
    """What all walks share. `now` tells seconds since the epoch, `rng` breaks ties."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        ledger: QuotaLedger,
        answering: Answering,
        keys: MemberKeys,
        *,
        now: Callable[[], float],
        rng: Random,
    ) -> None:
        self.backends = backends
        self.ledger = ledger
        self.answering = answering
        self.keys = keys
        self.forwarded = ForwardedModels()
        self.now = now
        self.rng = rng
        self._states: dict[tuple[str, str], StrategyState] = {}

    def state_of(self, chain: Chain) -> StrategyState:
        """What its strategy remembers now."""
        return self._states.get((chain.account, chain.name), NO_STATE)

    def planned(self, chain: Chain, protocol: str) -> Plan:
        """Whom to try, and whom not; the strategy is asked once."""
        now = self.now()

        def counters(member: Member) -> Counters:
            return self.ledger.counters(QuotaKey(chain.account, member.provider), member.quota, now)

        key = (chain.account, chain.name)
        made, self._states[key] = plan(chain, protocol, counters, now, self._states.get(key, NO_STATE), self.rng)
        return made


class ChainWalk:
    """One request's way through a chain."""

    def __init__(
        self,
        chains: Chains,
        chain: Chain,
        client: ClientConnection,
        record: Record,
        operation: Operation | None = None,
    ) -> None:
        self._chains = chains
        self._chain = chain
        self._client = client
        self._record = record
        self._operation = operation
        self._skipped: list[Skipped] = []
        """Who was not tried, and who was in vain."""
        self._reasons: list[str] = []
        self._member: Member | None = None
        self._model: str | None = None
        """The client's, to be sent instead of each member's own."""
        self._detail = ""
        self._until = 0.0
        """When the provider of this attempt may be asked again."""
        self._place: Reservation | None = None
        """What is given back unless this attempt succeeds."""

    async def run(self, request: Request, path: str) -> None:
        """Answer the request. Raises NoProviderAvailable when nothing is left, and RequestRejected."""
        if self._chain.forwards_model:
            self._model = model_to_forward(request.body, self._chain)
        # One for all attempts, and checked at once: what is malformed goes to nobody and takes no place of a quota.
        call = Call(self._chain.all_members[0].candidate, self._record.protocol, request.head, path, request.body)
        if self._record.notes is not None:
            call.hashes = self._record.notes.hashes
        call.place_of_model(self._chains.answering.limits.json_keys)
        plan = self._chains.planned(self._chain, self._record.protocol)
        self._skipped += plan.skipped
        self._reasons += [f"{each.provider} {each.reason}" for each in plan.skipped]
        if self._operation is not None:
            self._operation.ordering(plan)
        try:
            with Deadline(self._chain.request_timeout_seconds) as patience:
                for member, following in zip_longest(plan.attempts, plan.attempts[1:]):
                    if await self._try(member, following, call, patience):
                        return
        except TimeoutError:
            if not patience.expired or self._member is None:
                raise
            self._detail = "no answer within the route's request_timeout"
            self._note_failure(self._member, ErrorCategory.SERVER_ERROR, None)
        now = self._chains.now()
        until = earliest_recovery(self._skipped, now)
        raise NoProviderAvailable(
            until - now if until is not None else None, f"nobody left: {'; '.join(self._reasons)}"
        )

    async def _try(self, member: Member, following: Member | None, call: Call, patience: Deadline) -> bool:
        """Whether the client has its answer now. One more try at once, where the outcome allows it."""
        self._member = member
        for attempt in (1, 2):
            place = await self._reserve(member)
            if isinstance(place, Skipped):
                self._pass_over(place, following)
                return False
            self._place = place
            try:
                failure, status = await self._attempt(member, call, patience, others=following is not None)
            finally:
                if self._place is not None:
                    await self._give_back()
            if failure is None:
                return True
            again = may_retry(failure, status, attempt)
            self._note_failure(member, failure, member if again else following)
            if not again:
                return False
        return False

    async def _reserve(self, member: Member) -> Reservation | Skipped | None:
        """A place, or None where none can be counted and none is needed; or why the member is not tried."""
        if self._model is None and not member.candidate.model and member.candidate.endpoint.scheme != "mock":
            return Skipped(member.provider, "no_model")
        ledger, now = self._chains.ledger, self._chains.now()
        key = QuotaKey(self._chain.account, member.provider)
        try:
            reservation = await ledger.reserve(key, member.quota, now)
        except LedgerUnavailable as error:
            # What cannot be counted is not sent: a quota that is overrun can cost money, an answer that is late cannot.
            self._detail = str(error)
            if member.quota.is_limited:
                return Skipped(member.provider, "uncounted", now + SHORTEST_WAIT)
            return exhausted(member, ledger.counters(key, member.quota, now), now)
        if reservation is not None:
            return reservation
        reason = exhausted(member, ledger.counters(key, member.quota, now), now)
        return reason or Skipped(member.provider, "exhausted", now + SHORTEST_WAIT)

    async def _give_back(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            # Shielded: whoever goes away must not keep a place that was not used.
            await asyncio.shield(self._chains.ledger.release(place))

    def _pass_over(self, skipped: Skipped, following: Member | None) -> None:
        """Note a member that is not called."""
        self._skipped.append(skipped)
        self._reasons.append(f"{skipped.provider} {skipped.reason}{self._take_detail()}")
        if self._operation is not None:
            self._operation.skipped(skipped, following)

    def _note_failure(self, member: Member, failure: ErrorCategory, following: Member | None) -> None:
        """Note an attempt that failed, or could not be made, and who is next: the same again, another, or nobody."""
        self._reasons.append(f"{member.provider} {failure}{self._take_detail()}")
        if following is not member:
            until, self._until = self._until, 0.0
            if failure is ErrorCategory.SERVER_ERROR:
                until = self._chains.now() + SHORTEST_WAIT
            self._skipped.append(Skipped(member.provider, failure.value, until))
        if self._operation is not None:
            self._operation.attempt_failed(member, failure.value, following)

    def _take_detail(self) -> str:
        detail, self._detail = self._detail, ""
        return f" ({detail})" if detail else ""

    async def _attempt(
        self, member: Member, call: Call, patience: Deadline, *, others: bool
    ) -> tuple[ErrorCategory | None, int]:
        """What came of it (None: the client has its answer), and the status; 0 where none came."""
        record = self._record
        record.candidate = member.candidate
        record.is_fallback = member is self._chain.fallback
        try:
            call.candidate = self._chains.keys.candidate(member)
        except SecretUnreadable as error:
            self._detail = str(error)
            return ErrorCategory.AUTH_ERROR, 0
        scheme = call.candidate.endpoint.scheme
        call.keeps_model = False
        if self._model is not None and scheme in _FORWARDED_SCHEMES:
            call.candidate = self._chains.forwarded.candidate(call.candidate, self._model)
            call.keeps_model = True
        record.candidate = call.candidate
        record.attempts += 1
        if self._operation is not None:
            self._operation.attempting(member, call.candidate.model)
        call.is_sent = False
        if call.hashes is not None:
            call.hashes.sent = b""  # of the attempt before
        try:
            response = await self._chains.backends[scheme].open(call)
        except asyncio.CancelledError:
            record.was_sent = call.is_sent
            raise
        except UpstreamError as error:
            self._detail = error.detail
            return ErrorCategory.SERVER_ERROR, 0
        try:
            status = response.head.status
            if not 200 <= status <= 299:
                return await self._failed(response, member, call, patience)
            if others and response.head.is_event_stream:
                return await self._look_first(response, call, patience)
            self._place = None  # as the upstream counts it, even if the client goes away now
            await self._commit(response, call, patience)
            return None, status
        finally:
            response.close()

    async def _commit(self, response: Response, call: Call, patience: Deadline) -> None:
        patience.lift()
        minor = call.head.minor
        await self._chains.answering.answer(response, call.candidate, minor, self._client, self._record)

    async def _look_first(self, response: Response, call: Call, patience: Deadline) -> tuple[ErrorCategory | None, int]:
        """A stream that begins with an error, or ends before it has begun, was no answer."""
        answering, record = self._chains.answering, self._record
        place, self._place = self._place, None  # as the upstream counts it, even if the client goes away now
        first = FirstEvent(answering.limits.first_event_bytes)
        preview = Preview(lambda: self._committed(response, call, patience), response.abandon, first)
        try:
            truncated = await response.relay(preview)
            if preview.relay is None:
                self._place = place
                self._detail = "the event stream began with an error, or ended before its first event"
                return ErrorCategory.SERVER_ERROR, 0
            await answering.ended(preview.relay, truncated, record)
            return None, response.head.status
        finally:
            if preview.relay is not None:
                answering.note(response, preview.relay, record)
            elif patience.expired:  # its time was over before it had said anything: an attempt that failed
                self._place = place

    def _committed(self, response: Response, call: Call, patience: Deadline) -> Relay:
        patience.lift()
        return self._chains.answering.commit(response, call.candidate, call.head.minor, self._client, self._record)

    async def _failed(
        self, response: Response, member: Member, call: Call, patience: Deadline
    ) -> tuple[ErrorCategory | None, int]:
        """An answer that is no success: the client's if the request is at fault, else a reason to go on."""
        status = response.head.status
        self._detail = f"status {status}"
        if needs_body(status, member):
            category, is_answered = await self._judged_by_body(response, member, call, patience)
        else:
            category, is_answered = classify(status, b"", member), False
        if category is None or category is ErrorCategory.REQUEST_REJECTED:
            if not is_answered:
                await self._give_back()  # first: a client that has its answer may go, and is not waited for
                await self._commit(response, call, patience)
            if self._record.reason == reason_of_status(status):  # it went through whole, whatever the status says
                self._record.reason = ErrorCategory.REQUEST_REJECTED.value
            return None, status
        if category is ErrorCategory.RATE_LIMIT:
            now = self._chains.now()
            self._until = may_ask_again_at(response.head.fields, member.quota, now)
            await self._chains.ledger.exhaust(QuotaKey(self._chain.account, member.provider), self._until, now)
        return category, status

    async def _judged_by_body(
        self, response: Response, member: Member, call: Call, patience: Deadline
    ) -> tuple[ErrorCategory | None, bool]:
        """What an error means by what comes of its body in time, and whether the client has been given it."""
        answering, record = self._chains.answering, self._record
        await self._give_back()  # no success whatever it means, and the answer may be the client's from its first bytes
        judge = ErrorBody(response.head.status, member, answering.limits.error_body_bytes)
        timeout = asyncio.timeout(answering.limits.error_body_seconds)

        def commit() -> Relay:
            if not timeout.expired():
                timeout.reschedule(None)
            return self._committed(response, call, patience)

        preview = Preview(commit, response.abandon, judge)
        try:
            try:
                async with timeout:
                    truncated = await response.relay(preview)
            except TimeoutError:
                truncated = IDLE
            preview.cut()
            if preview.relay is not None:
                await answering.ended(preview.relay, truncated, record)
        finally:
            if preview.relay is not None:
                answering.note(response, preview.relay, record)
        return judge.category, preview.relay is not None
