"""Where a request policy searches bodies: beside the event loop what could hold it. CPU time, not the clock's."""

import asyncio
import random
import time
from typing import Any, cast

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.events.record import Record
from pointsman.gateway.stages.policies_in_force import About, PoliciesInForce
from pointsman.gateway.stages.request_policy import _MOST_ON_THE_LOOP, RequestPolicy
from pointsman.proxy.stages import Passage
from pointsman.routing.policy import CompiledPolicy
from pointsman.wire.request import Request, RequestHead
from tests.support.policies import compiled, rule

_PATH = "/v1/chat/completions"


class _Always:
    """One policy for all."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy

    def about(self, *_: Any) -> About:
        return About([self._policy])


async def _share_of_the_loop(policy: CompiledPolicy, body: bytes) -> float:
    stage = RequestPolicy(cast(PoliciesInForce, _Always(policy)))
    head = RequestHead("POST", _PATH, 1, [])
    target = Candidate("fast", Endpoint("mock", "", 0, ""), "m", (P.CHAT_COMPLETIONS,))
    try:
        loop, all_threads = time.thread_time(), time.process_time()
        for _ in range(3):
            record = Record("id", 0.0, "POST", _PATH, P.CHAT_COMPLETIONS)
            await stage(Passage(Request(head, body), record, target))
        return (time.thread_time() - loop) / (time.process_time() - all_threads)
    finally:
        stage.close()


@pytest.mark.alone
@pytest.mark.guarantee("P10")
@pytest.mark.parametrize(("more", "is_beside"), [(-1, False), (0, False), (1, True)])
def test_a_body_that_could_keep_patterns_busy_is_searched_beside_the_event_loop(more: int, is_beside: bool) -> None:
    policy = compiled(rule("wide", pattern="a[ab]{100}c"))
    assert policy is not None
    assert _MOST_ON_THE_LOOP % policy.steps == 0, policy.steps
    size = _MOST_ON_THE_LOOP // policy.steps + more
    luck = random.Random(1)  # the same text each time
    opening, closing = b'{"messages":[{"role":"user","content":"', b'"}]}'
    text = "".join(luck.choices("ab", k=size - len(opening) - len(closing))).encode()
    share = asyncio.run(_share_of_the_loop(policy, opening + text + closing))
    assert (share < 0.5) is is_beside, f"the loop did {share:.0%} of the work"


@pytest.mark.alone
@pytest.mark.guarantee("P10")
def test_texts_that_keep_one_accounts_patterns_busy_do_not_keep_anothers_from_being_searched() -> None:
    hard, easy = compiled(rule("wide", pattern="a[ab]{100}c")), compiled(rule("word", pattern="secret"))
    assert hard is not None
    assert easy is not None
    luck = random.Random(1)
    slow = b'{"messages":[{"role":"user","content":"%b"}]}' % bytes(luck.choices(b"ab", k=200_000))
    quick = b'{"messages":[{"role":"user","content":"%b"}]}' % (b"x" * 50_000)
    order: list[str] = []

    async def ask(name: str, stage: RequestPolicy, policy: CompiledPolicy, body: bytes) -> None:
        await stage.decide(policy, body, generates=True)
        order.append(name)

    async def crowd() -> None:
        stage = RequestPolicy(cast(PoliciesInForce, _Always(hard)))
        try:
            gone = asyncio.ensure_future(ask("gone", stage, hard, slow))
            await asyncio.sleep(0.02)
            gone.cancel()  # what it has begun goes on
            others = [ask("hard", stage, hard, slow) for _ in range(4)]
            await asyncio.gather(*others, *[ask("easy", stage, easy, quick) for _ in range(4)])
            assert not stage._searches._lines
        finally:
            stage.close()

    asyncio.run(crowd())
    assert order == ["easy"] * 4 + ["hard"] * 4
