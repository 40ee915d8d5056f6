"""Operations on policies: versions of an account's rules, of which one may be enforced and one be a dry run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.policy import PolicyState, PolicyVersion, Rule
from pointsman.routing.policy_rules import rule_problems
from pointsman.routing.text_patterns import pattern_cost, pattern_problem
from pointsman.store.interface import Store, Writer

MOST_VERSIONS = 100
"""That are kept of an account; the oldest go first."""
_SHOWN_PROBLEMS = 5


class Policies:
    """Sets, shows, enforces them and goes back."""

    def __init__(self, store: Store, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._say = say

    async def set(self, account: str, rules: tuple[Rule, ...]) -> PolicyVersion:
        """A new version, as a dry run in place of the one before. What is enforced stays. Raises InvalidRequest."""
        # In a thread: a thousand patterns take a fifth of a second.
        problems = await asyncio.to_thread(lambda: list(rule_problems(rules, pattern_problem, pattern_cost)))
        if problems:
            told = "; ".join(f"rule {each.rule + 1}: {each.reason}" for each in problems[:_SHOWN_PROBLEMS])
            raise InvalidRequest(f"{told}; {problems[0].next_step}")
        async with self._store.write() as writer:
            kept = await writer.policies(account)
            made = PolicyVersion(account, kept[0].version + 1 if kept else 1, rules, self._clock())
            await _keep(writer, [each for each in kept if each.state is PolicyState.DRY_RUN])
            await writer.insert_policy(made)
            old = [each for each in kept if each.state is PolicyState.KEPT]
            for each in old[max(0, MOST_VERSIONS - 3) :]:
                await writer.delete_policy(account, each.version)
        self._say(f"policy {made.version} of {account}: a dry run, {len(rules)} rules")
        return made

    async def list(self, account: str) -> Sequence[PolicyVersion]:
        """All versions that are kept, the newest first."""
        async with self._store.read() as reader:
            return await reader.policies(account)

    async def get(self, account: str, version: int = 0) -> PolicyVersion:
        """One version; 0: the newest. Raises NotFound."""
        return _named(await self.list(account), version)

    async def enforce(self, account: str, version: int = 0) -> PolicyVersion:
        """Let a version take effect, in place of the one before; 0: the dry run. Raises NotFound, NotPossibleNow."""
        async with self._store.write() as writer:
            kept = await writer.policies(account)
            chosen = _named(kept, version) if version else _in_state(kept, PolicyState.DRY_RUN)
            if chosen is None:
                raise NotPossibleNow("there is no dry run to enforce; see: pointsman policy list")
            return await self._enforce(writer, kept, chosen)

    async def _enforce(self, writer: Writer, kept: Sequence[PolicyVersion], chosen: PolicyVersion) -> PolicyVersion:
        await _keep(writer, [each for each in kept if each.state is PolicyState.ENFORCED and each != chosen])
        chosen = replace(chosen, state=PolicyState.ENFORCED, enforced_at=self._clock())
        await writer.mark_policy(chosen)
        self._say(f"policy {chosen.version} of {chosen.account}: enforced")
        return chosen

    async def dry_run(self, account: str, version: int = 0) -> PolicyVersion:
        """Let a version take no effect, and tell what it would do; 0: the enforced one. Raises as `enforce`."""
        async with self._store.write() as writer:
            kept = await writer.policies(account)
            chosen = _named(kept, version) if version else _in_state(kept, PolicyState.ENFORCED)
            if chosen is None:
                raise NotPossibleNow("no policy is enforced; see: pointsman policy list")
            await _keep(writer, [each for each in kept if each.state is PolicyState.DRY_RUN and each != chosen])
            chosen = replace(chosen, state=PolicyState.DRY_RUN)
            await writer.mark_policy(chosen)
        self._say(f"policy {chosen.version} of {account}: a dry run")
        return chosen

    async def rollback(self, account: str, version: int = 0) -> PolicyVersion:
        """Enforce what was enforced before; a version: that one, if it ever was. Raises as `enforce`."""
        async with self._store.write() as writer:
            kept = await writer.policies(account)
            now = _in_state(kept, PolicyState.ENFORCED)
            before = [each for each in kept if each.enforced_at is not None and each is not now]
            if version:
                chosen = _named(kept, version)
                if chosen.enforced_at is None:
                    raise NotPossibleNow(f"policy {version} was never enforced; see: pointsman policy list")
            elif before:
                chosen = max(before, key=lambda each: each.enforced_at or 0.0)
            else:
                raise NotPossibleNow("no other policy was ever enforced; 'pointsman policy dry-run' lifts this one")
            return await self._enforce(writer, kept, chosen)


async def _keep(writer: Writer, policies: Sequence[PolicyVersion]) -> None:
    for each in policies:
        await writer.mark_policy(replace(each, state=PolicyState.KEPT))


def _named(kept: Sequence[PolicyVersion], version: int) -> PolicyVersion:
    for each in kept:
        if version in (0, each.version):
            return each
    what = f"policy {version}" if version else "policy"
    raise NotFound(f"there is no {what}; see: pointsman policy list")


def _in_state(kept: Sequence[PolicyVersion], state: PolicyState) -> PolicyVersion | None:
    return next((each for each in kept if each.state is state), None)
