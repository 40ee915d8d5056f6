"""Sockets, tokens and requests of one runner that come at the same moment, or faster than it reads."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from pointsman.bus.interface import Handler, NoReply
from pointsman.bus.memory import MemoryBus, MemorySubscription
from pointsman.bus.subjects import runner_subject
from pointsman.core.control_errors import StoreUnavailable
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.gateway.runner_hub import RunnerHub
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.gateway.runner_side import RunnerLines
from pointsman.gateway.unsent_frames import MOST_UNSENT, UnsentFrames
from pointsman.wire.runner_frames import CANCEL, NEXT, START, ModelRequest, encode_frame
from tests.component.test_runner_exchanges import run
from tests.support.runner_bench import ACCOUNT, RUNNER, bench
from tests.support.waiting import until

IDENTITY = RunnerIdentity(ACCOUNT, RUNNER)
HELLO = json.dumps({"type": "hello", "runner_id": RUNNER, "model_proxy_version": 1})


class PlayedSocket:
    """A runner's end without a network: it says hello when it may, and then nothing."""

    def __init__(self) -> None:
        self.may_greet = asyncio.Event()
        self.code: int | None = None
        self._has_greeted = False
        self.awaits_served = False

    async def receive(self) -> str | None:
        await self.may_greet.wait()
        if self._has_greeted:
            await asyncio.Event().wait()
        self._has_greeted = True
        return HELLO

    async def send(self, frame: bytes) -> None:
        raise AssertionError("nobody asks")

    async def close(self, code: int) -> None:
        self.code = code


class LateBus(MemoryBus):
    """As one with a network in it: whoever publishes or serves lets others go first."""

    async def publish(self, subject: str, payload: bytes) -> None:
        await _turns(3)
        await super().publish(subject, payload)

    async def serve(self, subject: str, handler: Handler) -> MemorySubscription:
        await _turns(3)
        return await super().serve(subject, handler)


class Token:
    """What lets in, and how often it was asked about."""

    def __init__(self) -> None:
        self.is_valid = True

    async def confirm(self) -> bool:
        await asyncio.sleep(0)
        return self.is_valid


@contextlib.asynccontextmanager
async def hub() -> AsyncIterator[RunnerHub]:
    said: list[str] = []
    bus = LateBus(said.append)
    try:
        yield RunnerHub(bus, said.append, time.time, DEFAULT_RUNNER_LIMITS)
        assert not [line for line in said if "failed" in line]
    finally:
        await bus.close()


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.guarantee("N2")
@pytest.mark.parametrize("apart", range(8))
def test_of_a_hundred_sockets_at_once_the_last_is_in_force(apart: int) -> None:
    async def work() -> None:
        async with hub() as made, asyncio.TaskGroup() as tasks:
            sockets = [PlayedSocket() for _ in range(100)]
            serving = []
            for socket in sockets:
                socket.may_greet.set()
                serving.append(tasks.create_task(made.serve(IDENTITY, socket, Token().confirm)))
                await _turns(apart)
            await until(lambda: sum(socket.code is not None for socket in sockets) == 99)
            await _turns(50)
            codes = {socket.code for socket in sockets[:-1]}
            assert codes <= {4001, 1013}
            assert sockets[-1].code is None or 1013 in codes
            assert made.active_requests(ACCOUNT, RUNNER) is not None
            for each in serving:
                each.cancel()

    run(work)


@pytest.mark.parametrize("turns", range(25))
def test_a_token_that_is_replaced_while_a_socket_comes_keeps_no_line(turns: int) -> None:
    async def work() -> None:
        async with hub() as made, asyncio.TaskGroup() as tasks:
            for hello_first in (True, False):
                token, socket = Token(), PlayedSocket()
                if hello_first:
                    socket.may_greet.set()
                tasks.create_task(made.serve(IDENTITY, socket, token.confirm))
                await _turns(turns)
                token.is_valid = False
                await made.evict(ACCOUNT, RUNNER)
                socket.may_greet.set()
                await until(lambda socket=socket: socket.code == 4003)  # type: ignore[misc]
                assert made.active_requests(ACCOUNT, RUNNER) is None

    run(work)


def test_a_runner_that_cannot_be_judged_is_told_to_come_again_and_not_that_it_is_revoked() -> None:
    async def confirm() -> bool:
        raise StoreUnavailable("away")

    async def work() -> None:
        async with hub() as made:
            socket = PlayedSocket()
            socket.may_greet.set()
            await made.serve(IDENTITY, socket, confirm)
            assert socket.code == 1013
            assert made.active_requests(ACCOUNT, RUNNER) is None

    run(work)


def test_four_sockets_of_a_runner_may_wait_with_their_hello_and_a_fifth_may_not() -> None:
    async def work() -> None:
        async with hub() as made, asyncio.TaskGroup() as tasks:
            sockets = [PlayedSocket() for _ in range(5)]
            serving = [tasks.create_task(made.serve(IDENTITY, each, Token().confirm)) for each in sockets]
            await until(lambda: sockets[4].code == 1013)
            assert [each.code for each in sockets[:4]] == [None] * 4
            another = PlayedSocket()
            another.may_greet.set()
            other = RunnerIdentity(ACCOUNT, "another")
            serving.append(tasks.create_task(made.serve(other, another, Token().confirm)))
            await until(lambda: another.code == 1008)  # the hello names another runner: it was read
            sockets[0].may_greet.set()
            await until(lambda: made.active_requests(ACCOUNT, RUNNER) is not None)
            for each in serving:
                each.cancel()

    run(work)


@pytest.mark.parametrize(
    "payload",
    [b"0", b"1000", b"99999", b"9" * 5000, b"4001", b"4001 ", b"-1", b"\xff\xfe", b"4003\n", "٤٠٠١".encode(), b" 4003"],
)
def test_what_no_process_says_of_a_line_ends_it_only_by_a_code_of_ours(payload: bytes) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner:
            await made.hub.bus.request(runner_subject(ACCOUNT, RUNNER, "lines"), payload, 5)
            if payload.strip() == b"4001":
                assert await runner.closed() == 4001
            else:
                assert made.hub.active_requests(ACCOUNT, RUNNER) is not None

    run(work)


def test_a_client_that_asks_and_leaves_costs_a_slow_runner_nothing() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner:
            runner.line.transport.pause_reading()
            body = json.dumps({"model": "alias", "pad": "x" * (DEFAULT_RUNNER_LIMITS.request_bytes - 100)}).encode()
            for _ in range(3 * MOST_UNSENT):
                _, writer = await made.send(body)
                await until(lambda: made.active == 1)
                writer.close()
                await until(lambda: made.active == 0)
            runner.line.transport.resume_reading()
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(made.ask(last=True))
                while not (request := await runner.receive()).get("body", {}).get("last"):
                    pass
                await runner.answer(request, "{}", done=True)
                assert (await asked).status == 200

    run(work)


def _request(request_id: str, operation: str) -> ModelRequest:
    return ModelRequest(request_id, operation)


def _all(frames: UnsentFrames) -> list[tuple[str, str]]:
    async def taken() -> list[tuple[str, str]]:
        found = []
        with contextlib.suppress(TimeoutError):
            while True:
                frame: dict[str, Any] = json.loads(await asyncio.wait_for(frames.take(), 0.01))
                found.append((frame["request_id"], frame["operation"]))
        return found

    return asyncio.run(taken())


@pytest.mark.parametrize(
    ("added", "sent"),
    [
        ([("a", START), ("b", START), ("a", CANCEL)], [("b", START)]),
        ([("a", NEXT), ("b", START), ("a", CANCEL)], [("b", START), ("a", CANCEL)]),
        ([("a", START), ("a", CANCEL), ("a", CANCEL)], [("a", CANCEL)]),
        ([("b", START), ("a", CANCEL)], [("b", START), ("a", CANCEL)]),
    ],
)
def test_what_was_cancelled_before_it_was_sent_is_never_sent(
    added: list[tuple[str, str]], sent: list[tuple[str, str]]
) -> None:
    frames = UnsentFrames()
    assert all(frames.add(_request(*each)) for each in added)
    assert _all(frames) == sent


def test_sixteen_frames_may_wait_and_no_more() -> None:
    frames = UnsentFrames()
    assert [frames.add(_request(str(number), START)) for number in range(17)] == [True] * 16 + [False]
    assert len(_all(frames)) == 16


class _SlowHub:
    """Of a thousand runners some answer, and the others' processes are stopped."""

    def __init__(self, answers: Callable[[str], bool]) -> None:
        self.answers = answers

    def active_requests(self, _account: str, runner_id: str) -> None:
        return None

    async def ask_line(self, _account: str, runner_id: str, timeout_seconds: float) -> None:
        if self.answers(runner_id):
            return
        await asyncio.sleep(timeout_seconds)
        raise NoReply("no answer")


def test_a_list_of_a_thousand_runners_waits_for_stopped_processes_once() -> None:
    async def work() -> None:
        lines = RunnerLines(cast(RunnerHub, _SlowHub(lambda runner_id: int(runner_id) >= 960)))
        began = time.monotonic()
        found = await lines.connected(ACCOUNT, [str(number) for number in range(1000)])
        assert sorted(map(int, found)) == list(range(960, 1000))
        assert time.monotonic() - began < 5  # sixteen times a second would be needed to hear of each

    run(work)


def test_a_frame_is_encoded_as_it_is_sent() -> None:
    frames, request = UnsentFrames(), _request("a", NEXT)
    frames.add(request)
    assert asyncio.run(frames.take()) == encode_frame(request)
