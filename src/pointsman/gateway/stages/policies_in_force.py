"""Every account's policies, compiled, kept at what the store says.

When it is looked at is `following`'s; requests never wait for the store. What rules say is `routing.policy`'s.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pointsman.core.caller import Caller
from pointsman.core.policy import Policy, Side
from pointsman.routing.policy import AccountPatterns, CompiledPolicy, compile_patterns, compile_policy
from pointsman.store.interface import Reader

MOST_COMPILED = 4096
"""Callers times routes times dialects that are remembered of one policy."""


class About(NamedTuple):
    """The rules of each policy that are about some requests."""

    requests: Sequence[CompiledPolicy] = ()
    answers: Sequence[CompiledPolicy] = ()


NO_RULES = About()


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

    def __init__(self) -> None:
        self._by_account: dict[str, tuple[_InForce, ...]] = {}
        self._known: dict[tuple[Caller, str, str], About] = {}

    def about(self, caller: Caller, route: str, dialect: str) -> About:
        """The rules of each policy that are about such requests; none for most. The same lists until they change."""
        if caller.account not in self._by_account:
            return NO_RULES
        known = self._known.get((caller, route, dialect))
        return self._look(caller, route, dialect) if known is None else known

    def _look(self, caller: Caller, route: str, dialect: str) -> About:
        if len(self._known) >= MOST_COMPILED:
            self._known.clear()

        def of(side: Side) -> list[CompiledPolicy]:
            found = [each.about(caller, route, dialect, side) for each in self._by_account[caller.account]]
            return [each for each in found if each is not None]

        made = self._known[caller, route, dialect] = About(of(Side.REQUEST), of(Side.RESPONSE))
        return made

    async def take(self, reader: Reader, _: str) -> None:
        """See Kept."""
        made: dict[str, tuple[_InForce, ...]] = {}
        for each in await reader.policies_in_force():
            made[each.account] = (*made.get(each.account, ()), await self._made(each.policy))
        self._by_account, self._known = made, {}

    async def _made(self, policy: Policy) -> _InForce:
        """In a thread: a thousand patterns take 60 ms."""
        for known in self._by_account.get(policy.account, ()):
            if known.policy == policy:
                return known
        return await asyncio.to_thread(_compiled, policy)


def _compiled(policy: Policy) -> _InForce:
    return _InForce(policy, {side: compile_patterns(policy, side) for side in Side})
