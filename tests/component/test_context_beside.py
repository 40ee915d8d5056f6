"""Where a context stage reads bodies: small ones on the event loop, large ones beside it. CPU time, not the clock's."""

import asyncio
import time

import pytest
from bench.context_cost import conversation

from pointsman.core.candidate import Candidate
from pointsman.core.context_options import ContextOptions
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.events.record import Record
from pointsman.gateway.stages.context import LARGE_BODY, ContextStage
from pointsman.proxy.stages import Passage
from pointsman.wire.request import Request, RequestHead

pytestmark = pytest.mark.alone
_PATH = "/v1/chat/completions"


def _passage(body: bytes) -> Passage:
    record = Record("id", 0.0, "POST", _PATH, P.CHAT_COMPLETIONS)
    record.route = "fast"
    target = Candidate("fast", Endpoint("mock", "", 0, ""), "m", (P.CHAT_COMPLETIONS,))
    return Passage(Request(RequestHead("POST", _PATH, 1, []), body), record, target)


def _body(size: int) -> bytes:
    body = conversation(size - 32 * 1024)
    return body + b" " * (size - len(body))


async def _share_of_the_loop(body: bytes) -> float:
    """Of all CPU time that it takes to read a body some times."""
    stage = ContextStage(lambda: {("default", "fast"): ContextOptions(drop_duplicates=True)}, print)
    try:
        await stage.trim(_passage(body))
        loop, all_threads = time.thread_time(), time.process_time()
        for _ in range(20):
            passage = _passage(body)
            await stage.trim(passage)
            assert passage.notes.saved_tokens > 0
        return (time.thread_time() - loop) / (time.process_time() - all_threads)
    finally:
        stage.close()


@pytest.mark.guarantee("X4")
@pytest.mark.parametrize(("more", "is_beside"), [(-1, False), (0, False), (1, True)])
def test_a_large_conversation_is_read_beside_the_event_loop(more: int, is_beside: bool) -> None:
    share = asyncio.run(_share_of_the_loop(_body(LARGE_BODY + more)))
    assert (share < 0.5) is is_beside, f"the loop did {share:.0%} of the work"
