"""What every bus does: the one of a single process, and NATS with a real server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from pointsman.bus.interface import MAX_PAYLOAD_BYTES, Bus, BusUnavailable, NoReply, NoResponder, subject_of
from pointsman.bus.memory import MemoryBus
from pointsman.bus.nats import open_nats_bus
from pointsman.core.secret import Secret
from tests.support.nats_server import NatsServer, nats_server

SUBJECT = subject_of("pointsman", "runner_models", "account", "runner")
OTHER = subject_of("pointsman", "runner_models", "account", "other")
LONG = 20.0


@dataclass
class Buses:
    """Makes the two ends of a bus."""

    url: str = ""
    said: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def pair(self) -> AsyncIterator[tuple[Bus, Bus]]:
        """Who asks, and who serves."""
        asking: Bus
        serving: Bus
        if self.url:
            asking = await open_nats_bus(Secret(self.url), self.said.append)
            serving = await open_nats_bus(Secret(self.url), self.said.append)
        else:
            asking = serving = MemoryBus(self.said.append)
        try:
            yield asking, serving
        finally:
            await asking.close()
            await serving.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture(params=["memory", "nats"])
def buses(request: pytest.FixtureRequest) -> Buses:
    """Either kind."""
    if request.param == "memory":
        return Buses()
    running: NatsServer = request.getfixturevalue("server")
    return Buses(running.url)


async def echo(payload: bytes) -> bytes:
    return payload


async def test_a_request_is_answered_by_whoever_serves_its_subject(buses: Buses) -> None:
    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, echo)
        assert await asking.request(SUBJECT, b"\0hello\r\n", LONG) == b"\0hello\r\n"


@pytest.mark.guarantee("S4")
async def test_a_subject_that_nobody_serves_is_told_at_once(buses: Buses) -> None:
    async with buses.pair() as (asking, serving):
        await serving.serve(OTHER, echo)
        began = time.monotonic()
        with pytest.raises(NoResponder):
            await asking.request(SUBJECT, b"x", LONG)
        assert time.monotonic() - began < LONG / 4


async def test_a_subject_that_is_served_no_longer_finds_nobody(buses: Buses) -> None:
    async with buses.pair() as (asking, serving):
        subscription = await serving.serve(SUBJECT, echo)
        assert await asking.request(SUBJECT, b"1", LONG) == b"1"
        await subscription.close()
        with pytest.raises(NoResponder):
            await asking.request(SUBJECT, b"2", LONG)
        await subscription.close()


async def test_a_request_that_is_under_way_is_answered_though_its_subject_is_closed(buses: Buses) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(payload: bytes) -> bytes:
        arrived.set()
        await go_on.wait()
        return payload

    async with buses.pair() as (asking, serving), asyncio.TaskGroup() as tasks:
        subscription = await serving.serve(SUBJECT, slow)
        asked = tasks.create_task(asking.request(SUBJECT, b"late", LONG))
        await arrived.wait()
        await subscription.close()
        go_on.set()
        assert await asked == b"late"


async def test_whoever_does_not_answer_in_time_is_waited_for_no_longer(buses: Buses) -> None:
    async def mute(payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return payload

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, mute)
        began = time.monotonic()
        with pytest.raises(NoReply):
            await asking.request(SUBJECT, b"x", 0.2)
        assert 0.15 < time.monotonic() - began < LONG / 4


async def test_a_handler_that_fails_is_told_to_the_log_alone_and_the_next_request_is_served(buses: Buses) -> None:
    async def fails(payload: bytes) -> bytes:
        if payload == b"bad":
            raise ValueError("the prompt stands here")
        return payload

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, fails)
        with pytest.raises(NoReply) as raised:
            await asking.request(SUBJECT, b"bad", 0.2)
        assert await asking.request(SUBJECT, b"good", LONG) == b"good"
    told = "\n".join([*buses.said, str(raised.value)])
    assert "ValueError" in told
    assert "prompt" not in told


async def test_a_slow_request_does_not_hold_up_the_next_one(buses: Buses) -> None:
    go_on = asyncio.Event()

    async def some_slow(payload: bytes) -> bytes:
        if payload == b"slow":
            await go_on.wait()
        return payload

    async with buses.pair() as (asking, serving), asyncio.TaskGroup() as tasks:
        await serving.serve(SUBJECT, some_slow)
        slow = tasks.create_task(asking.request(SUBJECT, b"slow", LONG))
        assert await asking.request(SUBJECT, b"fast", LONG) == b"fast"
        assert not slow.done()
        go_on.set()
        assert await slow == b"slow"


async def test_of_several_who_serve_a_subject_all_are_asked_and_the_first_answer_counts(buses: Buses) -> None:
    both = asyncio.Barrier(2)

    async def first(payload: bytes) -> bytes:
        await both.wait()
        return b"first"

    async def never(payload: bytes) -> bytes:
        await both.wait()
        await asyncio.Event().wait()
        return b"never"

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, never)
        await serving.serve(SUBJECT, first)
        assert await asking.request(SUBJECT, b"x", LONG) == b"first"


async def test_a_message_that_wants_no_answer_arrives_or_is_nobodys(buses: Buses) -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def keep(payload: bytes) -> bytes:
        arrived.put_nowait(payload)
        return b""

    async with buses.pair() as (asking, serving):
        await asking.publish(OTHER, b"for nobody")
        await serving.serve(SUBJECT, keep)
        await asking.publish(SUBJECT, b"told")
        assert await asyncio.wait_for(arrived.get(), LONG) == b"told"


async def test_a_message_of_the_largest_size_passes_and_a_byte_more_does_not(buses: Buses) -> None:
    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, echo)
        largest = bytes(range(256)) * (MAX_PAYLOAD_BYTES // 256)
        assert await asking.request(SUBJECT, largest, LONG) == largest
        with pytest.raises(BusUnavailable, match=str(MAX_PAYLOAD_BYTES)):
            await asking.request(SUBJECT, largest + b"x", LONG)
        with pytest.raises(BusUnavailable, match=str(MAX_PAYLOAD_BYTES)):
            await asking.publish(SUBJECT, largest + b"x")
        assert await asking.request(SUBJECT, b"after", LONG) == b"after"


async def test_an_answer_that_is_too_large_is_none(buses: Buses) -> None:
    async def grows(payload: bytes) -> bytes:
        return bytes(MAX_PAYLOAD_BYTES + (payload == b"more"))

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, grows)
        assert len(await asking.request(SUBJECT, b"most", LONG)) == MAX_PAYLOAD_BYTES
        with pytest.raises(NoReply):
            await asking.request(SUBJECT, b"more", 0.5)
    assert any("ValueError" in line for line in buses.said)


async def test_a_request_that_is_cancelled_leaves_the_bus_as_it_was(buses: Buses) -> None:
    arrived = asyncio.Event()

    async def slow(payload: bytes) -> bytes:
        arrived.set()
        if payload == b"slow":
            await asyncio.Event().wait()
        return payload

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, slow)
        asked = asyncio.ensure_future(asking.request(SUBJECT, b"slow", LONG))
        await arrived.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await asking.request(SUBJECT, b"fast", LONG) == b"fast"


async def test_closing_a_bus_ends_the_requests_that_are_under_way(buses: Buses) -> None:
    arrived = asyncio.Event()

    async def mute(payload: bytes) -> bytes:
        arrived.set()
        await asyncio.Event().wait()
        return payload

    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, mute)
        asked = asyncio.ensure_future(asking.request(SUBJECT, b"x", LONG))
        await arrived.wait()
        began = time.monotonic()
        await asking.close()
        with pytest.raises(BusUnavailable):
            await asked
        assert not buses.said
        assert time.monotonic() - began < LONG / 4
        for attempt in (asking.request(SUBJECT, b"x", LONG), asking.publish(SUBJECT, b"x"), asking.serve(OTHER, echo)):
            with pytest.raises(BusUnavailable, match="closed"):
                await attempt


async def test_many_requests_at_once_get_each_its_own_answer(buses: Buses) -> None:
    async with buses.pair() as (asking, serving):
        await serving.serve(SUBJECT, echo)
        answers = await asyncio.gather(*(asking.request(SUBJECT, b"%d" % each, LONG) for each in range(200)))
    assert answers == [b"%d" % each for each in range(200)]


@pytest.mark.parametrize("part", ["", "a.b", "*", ">", "a b", "a\r\nPUB b", "ä", "a" * 129])
def test_a_part_of_a_subject_that_reaches_beyond_its_place_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match="part of a subject"):
        subject_of("pointsman", part)
    assert subject_of("pointsman", "a" * 128)
