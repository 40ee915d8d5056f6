"""From an admitted request to an answered one: pick a candidate, call it, relay, note what happened."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import cast

from pointsman.config.secrets import SecretUnreadable
from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.errors import NotInference, RouterError, UpstreamProtocol, UpstreamUnavailable
from pointsman.core.event_kinds import INFER_CANCELLED, INFER_FAILED, INTERNAL_ERROR
from pointsman.core.fault_place import fault_place
from pointsman.core.limits import Limits
from pointsman.core.model_errors import AccountHalted
from pointsman.core.runner_model import RunnerModel
from pointsman.events.operation_log import OperationLog
from pointsman.events.operations import Subject
from pointsman.events.operations_record import Operation, OperationJournal
from pointsman.events.printable import told_authority
from pointsman.events.reasons import reason_of
from pointsman.events.record import Record, Refusal, failed_handshake, peer_of, refusal_kind
from pointsman.proxy.answering import Answering
from pointsman.proxy.call import Backend, Call
from pointsman.proxy.chain_walk import Chains, ChainWalk
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.ledger import QuotaLedger
from pointsman.proxy.member_keys import MemberKeys
from pointsman.proxy.reception import Admitted, Reception
from pointsman.proxy.stages import NO_STAGES, Passage, Stages
from pointsman.proxy.turns import Turns
from pointsman.routing.pattern import dialect_of
from pointsman.routing.strategies import NO_STATE, StrategyState
from pointsman.wire.handshake import explain_handshake
from pointsman.wire.request import Request, RequestHead

_LARGE_BODY = 512 * 1024
"""Its check and its write take milliseconds; smaller ones don't wait for their turn."""


class Dispatcher:
    """Serves the requests that a reception takes in; direct routes."""

    def __init__(
        self,
        reception: Reception,
        backends: Mapping[str, Backend],
        log: OperationLog,
        limits: Limits,
        *,
        clock: Callable[[], float],
        request_ids: Callable[[], str],
    ) -> None:
        self._reception = reception
        self._backends = backends
        """By endpoint scheme."""
        self._log = log
        self._limits = limits
        self._clock = clock
        self.new_request_id = request_ids
        self._turns = Turns()
        self._answering = Answering(limits)
        self._chains: Chains | None = None
        self.pass_stages(NO_STAGES)
        self._journal: OperationJournal | None = None

    def serve_chains(self, ledger: QuotaLedger, rng: Random, journal: OperationJournal | None = None) -> None:
        """Serve chains too, their quotas counted by a ledger. What becomes of requests is told to a journal."""
        self._journal = journal
        keys = MemberKeys(self._log.say)
        self._chains = Chains(self._backends, ledger, self._answering, keys, now=lambda: self._log.now, rng=rng)

    def state_of(self, chain: Chain) -> StrategyState:
        """What a chain's strategy remembers now."""
        return NO_STATE if self._chains is None else self._chains.state_of(chain)

    def pass_stages(self, stages: Stages) -> None:
        """Ask these around each request from now on."""
        self._before, self._after = stages.before, stages.after
        self._answering.response_policy = stages.response_policy

    def admit(self, head: RequestHead) -> Admitted:
        """Decide from the head alone. Raises RouterError."""
        return self._reception.admit(head)

    def refused(self, error: RouterError, head: RequestHead | None) -> bytes:
        """Note a request that was never served, and answer it."""
        refusal, protocol = self._refusal(error, inside=True), ""
        if head is not None:
            refusal.method, refusal.path = head.method, head.target
            protocol = dialect_of(head.target)
        self._log.append(refusal)
        return self._reception.error_answer(error, refusal.request_id, 0, protocol=protocol, keep_alive=False)

    def refused_connection(self, error: RouterError, peer: object) -> bytes:
        """Note a client that did not get as far as the door, and answer it."""
        refusal = self._refusal(error, inside=False)
        refusal.peer = peer_of(peer)
        if isinstance(error, NotInference):
            refusal.host, refusal.port = told_authority(error.asked)
        self._log.append(refusal)
        return self._reception.error_answer(error, refusal.request_id, 0, protocol="", keep_alive=False)

    def _refusal(self, error: RouterError, *, inside: bool) -> Refusal:
        kind, reason = refusal_kind(error, inside=inside), reason_of(error)
        refusal = Refusal(kind, self.new_request_id(), self._log.now, reason, error.detail)
        refusal.status = error.status
        return refusal

    def handshake_failed(self, reason: str, peer: object) -> None:
        """Note a client whose TLS did not come about."""
        word, text = explain_handshake(reason)
        self._log.append(failed_handshake(self.new_request_id(), self._log.now, word, text, peer_of(peer)))

    async def serve(self, admitted: object, request: Request, client: ClientConnection) -> None:
        """Answer one request."""
        if not isinstance(admitted, Admitted):
            raise TypeError("serve takes what admit returned")
        started = self._clock()
        head = request.head
        record = Record(self.new_request_id(), self._log.now, head.method, admitted.target.path, admitted.protocol)
        record.received = len(request.body)
        record.caller = admitted.caller
        self._log.append(record)
        client.running = record
        try:
            await self._call(admitted, request, client, record)
        except RouterError as error:
            self._answer_error(error, client, record)
        except asyncio.CancelledError:
            if not self._was_stopped(client, record):
                if not record.heard_out:
                    record.kind, record.reason = INFER_CANCELLED, client.left_because
                raise
        except Exception as error:
            # Nothing below is meant to raise anything else; the client is told as little as of a broken upstream.
            self._answer_error(UpstreamProtocol(f"internal error: {fault_place(error)}"), client, record)
            record.fault, record.reason = INTERNAL_ERROR, "internal_error"
        finally:
            client.running = None
            record.requested_model = admitted.asked
            record.seconds = self._clock() - started
            record.finish_operation()  # first: the log takes the meter out of the record
            self._log.append(record)
            for stage in self._after:
                stage(record)

    async def _call(self, admitted: Admitted, request: Request, client: ClientConnection, record: Record) -> None:
        if len(request.body) > _LARGE_BODY:
            await self._turns.wait()
        target = admitted.choose(request.body)
        record.route = target.name if isinstance(target, Chain) else target.route
        operation = self._told(record, target.fallback if isinstance(target, Chain) else None)
        if self._before:
            request = await self._passed(Passage(request, record, target))
        path = admitted.target.path + admitted.target.query
        if type(target) is Chain:
            if self._chains is None:
                raise UpstreamProtocol("chains are not served here")
            await ChainWalk(self._chains, target, client, record, operation).run(request, path)
            return
        candidate = target if type(target) is Candidate else cast(Member | RunnerModel, target).candidate
        if operation is not None:
            operation.calling(candidate.provider, candidate.model)
        if type(target) is Member:
            candidate = self._with_key(target)
        record.candidate = candidate
        record.attempts = 1
        call = Call(candidate, admitted.protocol, request.head, path, request.body)
        if record.notes is not None:
            call.hashes = record.notes.hashes
        if type(target) is RunnerModel:
            call.runner_model = target
        try:
            response = await self._backends[candidate.endpoint.scheme].open(call)
        except asyncio.CancelledError:
            record.was_sent = call.is_sent
            raise
        try:
            await self._answering.answer(response, candidate, request.head.minor, client, record)
        finally:
            response.close()

    def _was_stopped(self, client: ClientConnection, record: Record) -> bool:
        """Whether it was cancelled by `ClientConnection.stop`, and its client has been told."""
        task = asyncio.current_task()
        if not record.stopped or record.heard_out or task is None or task.uncancel() > 0:
            return False  # it was, and the client has gone as well, or has heard all
        if record.status:  # the relay has told
            record.kind, record.reason, record.detail = INFER_FAILED, record.stopped, AccountHalted.text
        else:
            self._answer_error(AccountHalted(), client, record)
        return True

    async def _passed(self, passage: Passage) -> Request:
        """What is sent on of a request that every stage let pass. Raises RouterError."""
        for stage in self._before:
            await stage(passage)
        request, head = passage.request, passage.request.head
        if passage.wants_plain_answer:
            head = head.without_codings()
        elif passage.body is request.body:
            return request
        return Request(head, passage.body)

    def _told(self, record: Record, fallback: Member | None) -> Operation | None:
        """The journal's account of a request that is accepted now."""
        if self._journal is None:
            return None
        subject = Subject(record.request_id, record.caller.account, record.route)
        record.operation = operation = self._journal.started(subject, fallback)
        return operation

    def _with_key(self, member: Member) -> Candidate:
        """A direct route's, whose key is in a file. Raises UpstreamUnavailable."""
        if self._chains is None:
            raise UpstreamProtocol("keys in files are not read here")
        try:
            return self._chains.keys.candidate(member)
        except SecretUnreadable as error:
            raise UpstreamUnavailable(f"the key of provider {member.provider}: {error}") from None

    def _answer_error(self, error: RouterError, client: ClientConnection, record: Record) -> None:
        record.fail(error)
        if record.status:  # a head has gone out already
            client.cut(visibly=True)
            return
        record.status = error.status
        answer = self._reception.error_answer(
            error,
            record.request_id,
            record.attempts,
            protocol=record.protocol,
            keep_alive=client.keep_alive,
            route=record.route,
        )
        if record.notes is not None and record.notes.hashes is not None:
            record.notes.hashes.hand(answer.partition(b"\r\n\r\n")[2])
        client.write(answer)
