"""What is remembered of the policies in force."""

import time

import pytest

from pointsman.core.caller import ANYBODY
from pointsman.core.policy import Effect, PolicyState, PolicyVersion, Rule, Side
from pointsman.gateway.following import Followed
from pointsman.gateway.stages.policies_in_force import MOST_COMPILED, PoliciesInForce
from tests.support.databases import Database

RULE = Rule("no-shell", Side.REQUEST, Effect.BLOCK, denied_tools=("shell",))


@pytest.mark.parametrize("more", [0, 1])
async def test_rules_are_remembered_for_so_many_routes_and_then_found_anew(sqlite: Database, more: int) -> None:
    policies = PoliciesInForce()
    async with sqlite.opened() as store:
        async with store.write() as writer:
            version = PolicyVersion(ANYBODY.account, 1, (RULE,), time.time(), PolicyState.ENFORCED, time.time())
            await writer.insert_policy(version)
        await Followed(store, print).keep(policies, "policies")
    first = policies.about(ANYBODY, "route-0", "openai_chat_completions")
    for number in range(MOST_COMPILED + more):
        [compiled] = policies.about(ANYBODY, f"route-{number}", "openai_chat_completions").requests
        assert compiled.rules == (RULE,)
    assert len(policies._known) == (1 if more else MOST_COMPILED)
    assert (policies.about(ANYBODY, "route-0", "openai_chat_completions") is first) is not bool(more)
