"""The stage that holds requests against their account's policies, and keeping these at what the store says.

What rules say is `routing.policy`'s. Owns when they are compiled, what a client and the operator are told, and that
large bodies are searched beside the event loop: the engine lets go of the interpreter.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pointsman.core.caller import Caller
from pointsman.core.model_errors import PolicyBlocked, PolicyUnsearchable
from pointsman.core.policy import Policy, Side
from pointsman.events.operations_record import Operation
from pointsman.proxy.stages import Passage
from pointsman.routing.policy import (
    PASSED,
    AccountPatterns,
    CompiledPolicy,
    Decision,
    Unsearchable,
    compile_patterns,
    compile_policy,
    evaluate,
)
from pointsman.routing.tokens_used import is_counting
from pointsman.store.interface import Store

_LARGE_BODY = 32 * 1024
"""Larger ones are searched in a thread: 200 KiB take 2 ms, and many times that with hard patterns."""
_MOST_ON_THE_LOOP = 4_000_000
"""Bytes times open steps of the patterns: a hostile text of so much holds the loop for 20 ms, any other for less than
one."""
_THREADS = 2
_SEARCH_SECONDS = 10.0
"""Beyond it a body counts as one that cannot be searched."""
MOST_COMPILED = 4096
"""Callers times routes times dialects that are remembered of one policy."""


@dataclass(frozen=True, slots=True)
class _InForce:
    policy: Policy
    patterns: Mapping[Side, AccountPatterns]
    compiled: dict[tuple[Side, Caller, str, str], CompiledPolicy | None] = field(default_factory=dict)

    def about(self, caller: Caller, route: str, dialect: str, side: Side) -> CompiledPolicy | None:
        """The rules for such requests."""
        asked = side, caller, route, dialect
        if asked not in self.compiled:
            if len(self.compiled) >= MOST_COMPILED:
                self.compiled.clear()
            self.compiled[asked] = compile_policy(self.policy, self.patterns[side], caller, route, dialect, side)
        return self.compiled[asked]


class PoliciesInForce:
    """By account: the enforced policy, and then the dry run. While the store is away they stay as they were."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = -1
        self._turn = asyncio.Lock()
        self._by_account: dict[str, tuple[_InForce, ...]] = {}

    def about(self, caller: Caller, route: str, dialect: str, side: Side) -> list[CompiledPolicy]:
        """The rules of each policy that are about such requests; none for most."""
        in_force = self._by_account.get(caller.account)
        if in_force is None:
            return []
        found = [each.about(caller, route, dialect, side) for each in in_force]
        return [each for each in found if each is not None]

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        async with self._turn:
            if await self._store.generation() != self._seen:
                async with self._store.read() as reader:
                    seen, versions = await reader.generation(), await reader.policies_in_force()
                made: dict[str, tuple[_InForce, ...]] = {}
                for each in versions:
                    made[each.account] = (*made.get(each.account, ()), await self._made(each.policy))
                self._by_account, self._seen = made, seen

    async def _made(self, policy: Policy) -> _InForce:
        """In a thread: a thousand patterns take 60 ms."""
        for known in self._by_account.get(policy.account, ()):
            if known.policy == policy:
                return known
        return await asyncio.to_thread(_compiled, policy)


def _compiled(policy: Policy) -> _InForce:
    return _InForce(policy, {side: compile_patterns(policy, side) for side in Side})


class RequestPolicy:
    """The stage."""

    def __init__(self, policies: PoliciesInForce) -> None:
        self._policies = policies
        self._threads = ThreadPoolExecutor(_THREADS, "policy")

    def close(self) -> None:
        """Begin no other search."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, passage: Passage) -> None:
        """Raises PolicyBlocked and PolicyUnsearchable."""
        record = passage.record
        about_answers = self._policies.about(record.caller, record.route, record.protocol, Side.RESPONSE)
        if about_answers:
            passage.wants_plain_answer = any(compiled.refuses_unread for compiled in about_answers)
        in_force = self._policies.about(record.caller, record.route, record.protocol, Side.REQUEST)
        if not in_force:
            return
        body, generates = passage.body, not is_counting(record.path)
        content_type = passage.request.head.values.get(b"content-type", b"")
        for compiled in in_force:
            decision = await self.decide(compiled, body, generates=generates, content_type=content_type)
            _note(passage, compiled, decision)
            if decision.blocked_by:
                raise blocked(decision)
            if decision.body is not None:
                passage.body = decision.body

    async def decide(
        self, compiled: CompiledPolicy, body: bytes, *, generates: bool, content_type: bytes = b""
    ) -> Decision:
        """What one policy says of a body. Raises PolicyUnsearchable."""
        try:
            return await self._decide(compiled, body, generates=generates, content_type=content_type)
        except Unsearchable as error:
            raise PolicyUnsearchable(f"{PolicyUnsearchable.text}: {error}") from None

    async def _decide(
        self, compiled: CompiledPolicy, body: bytes, *, generates: bool, content_type: bytes = b""
    ) -> Decision:
        if len(body) <= _LARGE_BODY and len(body) * compiled.steps <= _MOST_ON_THE_LOOP:
            return evaluate(compiled, body, generates=generates, content_type=content_type)
        search = partial(evaluate, compiled, body, generates=generates, content_type=content_type)
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, search)
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
