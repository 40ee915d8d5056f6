"""The stage that holds answers against their account's policies.

What rules say, and what is held, is `routing.answer_rules`'s; which policies are in force `policies_in_force`'s. Owns
which answers are looked at, and what a client and the operator are told.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

from pointsman.core.caller import Caller
from pointsman.core.policy import PolicyHit
from pointsman.core.protocols import InferenceProtocol
from pointsman.events.operations_record import Operation
from pointsman.events.record import Record
from pointsman.gateway.stages.policies_in_force import MOST_COMPILED, PoliciesInForce
from pointsman.proxy.stages import BodyFilter
from pointsman.routing.answer_rules import AnswerRules
from pointsman.routing.policy import CompiledPolicy
from pointsman.routing.tokens_used import is_counting
from pointsman.wire.response import ResponseHead, has_body

_LEAST_SUCCESS, _MOST_SUCCESS = 200, 299
_IDENTITY = (b"", b"identity")


class ResponsePolicy:
    """The stage."""

    def __init__(self, policies: PoliciesInForce) -> None:
        self._policies = policies
        self._made: dict[tuple[Caller, str, str], tuple[Sequence[CompiledPolicy], AnswerRules]] = {}

    def __call__(self, record: Record, head: ResponseHead) -> BodyFilter | None:
        """What an answer's body goes through. Errors of an upstream, and what has no text, pass as they are."""
        in_force = self._in_force(record)
        if not in_force or not _LEAST_SUCCESS <= head.status <= _MOST_SUCCESS or not has_body(head.status):
            return None
        if record.protocol == InferenceProtocol.EMBEDDINGS or is_counting(record.path):
            return None
        rules = self._rules(record, in_force)
        if record.notes is not None:
            record.notes.policy_version = record.notes.policy_version or in_force[0].version
            record.notes.own_lines += b"".join(map(_line, in_force, rules.effects))
        is_coded = _is_coded(head)
        if is_coded and rules.holding is None:
            return None
        return rules.filter(is_stream=head.is_event_stream, is_coded=is_coded, tell=self._teller(record))

    def _teller(self, record: Record) -> Callable[[CompiledPolicy, PolicyHit], None]:
        """Notes what matches: on the loop, wherever the answer is searched."""
        loop, here = asyncio.get_running_loop(), threading.get_ident()

        def tell(compiled: CompiledPolicy, hit: PolicyHit) -> None:
            if threading.get_ident() == here:
                _tell(record, compiled, hit)
            else:
                loop.call_soon_threadsafe(_tell, record, compiled, hit)

        return tell

    def _in_force(self, record: Record) -> Sequence[CompiledPolicy]:
        """Those that its request was held against: one that is enforced meanwhile is for the requests after it."""
        if record.notes is not None and record.notes.answer_policies is not None:
            return record.notes.answer_policies
        return self._policies.about(record.caller, record.route, record.protocol).answers

    def _rules(self, record: Record, in_force: Sequence[CompiledPolicy]) -> AnswerRules:
        asked = record.caller, record.route, record.protocol
        known = self._made.get(asked)
        if known is not None and len(known[0]) == len(in_force) and all(map(_is_same, known[0], in_force)):
            return known[1]
        if len(self._made) >= MOST_COMPILED:
            self._made.clear()
        made = AnswerRules(in_force)
        self._made[asked] = in_force, made
        return made


def _is_same(one: CompiledPolicy, other: CompiledPolicy) -> bool:
    return one is other


def _is_coded(head: ResponseHead) -> bool:
    return any(
        name.lower() == b"content-encoding" and value.strip().lower() not in _IDENTITY for name, value in head.fields
    )


def _tell(record: Record, compiled: CompiledPolicy, hit: PolicyHit) -> None:
    if record.notes is not None:
        record.notes.hits += (hit,)
    if isinstance(record.operation, Operation):
        record.operation.policy_hit(hit, compiled.version, is_enforced=compiled.is_enforced)


def _line(compiled: CompiledPolicy, effects: str) -> bytes:
    state = b"enforced" if compiled.is_enforced else b"dry-run"
    return b"x-pointsman-policy: %b=%d; answers=%b\r\n" % (state, compiled.version, effects.encode("ascii"))
