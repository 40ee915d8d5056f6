"""The stage that holds requests against their account's policies.

What rules say is `routing.policy`'s; which are in force `policies_in_force`'s. Owns what a client and the operator
are told, and that large bodies are searched beside the event loop: the engine lets go of the interpreter.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from pointsman.core.model_errors import PolicyBlocked, PolicyUnsearchable
from pointsman.events.operations_record import Operation
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.gateway.stages.policy_searches import PolicySearches
from pointsman.proxy.stages import LARGEST_SHARED, Passage
from pointsman.routing.policy import (
    PASSED,
    CompiledPolicy,
    Decision,
    Unsearchable,
    evaluate,
)
from pointsman.routing.tokens_used import is_counting
from pointsman.wire.json_strings import Document

_MOST_ON_THE_LOOP = 1_000_000
"""Bytes times open steps of the patterns: a hostile text holds the loop for 25 ms at the worst, any other for less than
one."""
_SEARCH_SECONDS = 10.0
"""Beyond it a body counts as one that cannot be searched."""


class RequestPolicy:
    """The stage."""

    def __init__(self, policies: PoliciesInForce) -> None:
        self._policies = policies
        self._searches = PolicySearches()

    def close(self) -> None:
        """Begin no other search."""
        self._searches.close()

    async def __call__(self, passage: Passage) -> None:
        """Raises PolicyBlocked and PolicyUnsearchable."""
        record, notes = passage.record, passage.notes
        in_force, about_answers = self._policies.about(record.caller, record.route, record.protocol)
        notes.answer_policies = about_answers  # of the same moment, whatever comes into force until there is an answer
        if about_answers:
            passage.wants_plain_answer = any(compiled.refuses_unread for compiled in about_answers)
        if not in_force:
            return
        body, document, generates = passage.body, passage.document, not is_counting(record.path)
        content_type = passage.request.head.values.get(b"content-type", b"")
        for compiled in in_force:
            decision = await self.decide(compiled, body, document, generates=generates, content_type=content_type)
            _note(passage, compiled, decision)
            if decision.blocked_by:
                raise blocked(decision)
            if decision.body is not None:
                passage.body = decision.body

    async def decide(
        self,
        compiled: CompiledPolicy,
        body: bytes,
        document: Document | None = None,
        *,
        generates: bool,
        content_type: bytes = b"",
    ) -> Decision:
        """What one policy says of a body. Raises PolicyUnsearchable."""
        try:
            if len(body) <= LARGEST_SHARED and len(body) * compiled.steps <= _MOST_ON_THE_LOOP:
                return evaluate(compiled, body, generates=generates, content_type=content_type, document=document)
            search = partial(evaluate, compiled, body, generates=generates, content_type=content_type)
            return await self._searched(compiled, search)
        except Unsearchable as error:
            raise PolicyUnsearchable(f"{PolicyUnsearchable.text}: {error}") from None

    async def _searched(self, compiled: CompiledPolicy, search: Callable[[], Decision]) -> Decision:
        """Beside the event loop. Raises Unsearchable."""
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                return await self._searches.run(search, compiled.patterns)
        except TimeoutError:
            if compiled.refuses_unread:
                raise Unsearchable("the search took too long") from None
            return PASSED


def blocked(decision: Decision) -> PolicyBlocked:
    """What a client is refused with whose request a rule blocks."""
    return PolicyBlocked(f"the request is refused by the rule {decision.blocked_by!r} of a policy")


def _note(passage: Passage, compiled: CompiledPolicy, decision: Decision) -> None:
    notes, operation = passage.notes, passage.record.operation
    notes.policy_version = notes.policy_version or compiled.version
    notes.own_lines += _line(compiled, decision)
    if not decision.hits:
        return
    notes.hits += decision.hits
    if isinstance(operation, Operation):
        for hit in decision.hits:
            operation.policy_hit(hit, compiled.version, is_enforced=compiled.is_enforced)


def _line(compiled: CompiledPolicy, decision: Decision) -> bytes:
    if compiled.is_enforced:
        said = b"; redacted" if decision.body is not None else b""
        return b"x-pointsman-policy: enforced=%d%b\r\n" % (compiled.version, said)
    would = decision.would_block
    said = b"; would-block=%b" % would.encode("ascii", "replace") if would else b""
    return b"x-pointsman-policy: dry-run=%d%b\r\n" % (compiled.version, said)
