"""The bus of a gateway of several processes: Core NATS, request and reply, no queue and no JetStream.

A connection that is lost is made again in the background. Until then whoever asks is told at once that there is no bus,
and whoever waited for an answer too.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from nats import errors
from nats.aio.msg import Msg

from pointsman.bus.interface import MAX_PAYLOAD_BYTES, BusUnavailable, Handler
from pointsman.bus.nats_client import BrokerClient, BusMisconfigured, connected
from pointsman.bus.nats_replies import Replies
from pointsman.core.broker import Broker, parse_broker
from pointsman.core.fault_place import fault_place
from pointsman.core.secret import Secret

_LOOK_SECONDS = 2.0
"""Between two looks at whether the server still answers."""
_ANSWER_SECONDS = 3.0
"""For one such answer: a server that is stopped is given up 5 s after that at the latest."""
_PUBLISH_SECONDS = 1.0
"""For a message to be taken over by the connection; it waits only when that is full."""
_UNSENT_BYTES = 4 * MAX_PAYLOAD_BYTES
"""Held for a server that does not read. Beyond it: BusUnavailable."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to connect again."""


class NatsSubscription:
    """See Subscription. It outlives connections."""

    def __init__(self, bus: "NatsBus", subject: str, handler: Handler) -> None:
        self._bus = bus
        self.subject = subject
        self.handler = handler
        self._now: Any = None
        """What the connection of the moment knows of it."""

    async def begin(self, client: BrokerClient) -> None:
        """Serve it on a connection; the server knows of it when this returns. Raises what the client raises."""

        async def receive(message: Msg) -> None:
            self._bus.start(self._bus.answer(client, self, message))

        self._now = await client.subscribe(self.subject, cb=receive)
        await client.flush(_ANSWER_SECONDS)

    async def close(self) -> None:
        """See Subscription."""
        now, self._now = self._now, None
        self._bus.forget(self)
        if now is not None:
            with contextlib.suppress(errors.Error, OSError, TimeoutError):  # then it has ended with its connection
                await now.drain()


class NatsBus:
    """Made by `open_nats_bus`."""

    def __init__(self, broker: Broker, say: Callable[[str], None], tls: ssl.SSLContext | None) -> None:
        self._broker = broker
        self._say = say
        self._tls = tls
        self._client: BrokerClient | None = None
        self._replies: Replies
        """Of the client, from the first one on."""
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost.set_result(None)
        self._subscriptions: list[NatsSubscription] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._told_of_loss: list[Callable[[], None]] = []
        self._closed = False

    async def open(self, *, may_be_away: bool = False) -> None:
        """Connect, and stay connected from now on. Raises BusUnavailable.

        With `may_be_away` a server that cannot be reached now is told of, and tried again and again.
        """
        try:
            await self._connect()
        except BusUnavailable as error:
            if not may_be_away or isinstance(error, BusMisconfigured):
                raise
            self._say(f"warning: bus: {error}; models beside runners are offline until it can")
        self._keeper = self.start(self._keep())

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """See Bus."""
        self._line(payload)
        try:
            return await self._replies.ask(subject, payload, timeout_seconds)
        except (errors.Error, OSError) as error:
            raise BusUnavailable(f"the NATS server cannot be asked: {type(error).__name__}") from None

    async def publish(self, subject: str, payload: bytes) -> None:
        """See Bus."""
        client = self._line(payload)
        try:
            async with asyncio.timeout(_PUBLISH_SECONDS):
                await client.publish(subject, payload)
        except (errors.Error, OSError, TimeoutError) as error:
            raise BusUnavailable(f"the NATS server does not take a message: {type(error).__name__}") from None

    def _line(self, payload: bytes) -> BrokerClient:
        client = self._client
        if self._closed or client is None or not client.is_connected:
            raise BusUnavailable("the bus is closed" if self._closed else "the NATS server is not connected")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BusUnavailable(f"a message of {len(payload)} bytes; the bus carries {MAX_PAYLOAD_BYTES}")
        if client.pending_data_size > _UNSENT_BYTES:
            raise BusUnavailable("the NATS server does not read what it is sent")
        return client

    async def serve(self, subject: str, handler: Handler) -> NatsSubscription:
        """See Bus."""
        client = self._line(b"")
        subscription = NatsSubscription(self, subject, handler)
        try:
            await subscription.begin(client)
        except (errors.Error, OSError) as error:
            await subscription.close()
            raise BusUnavailable(f"the NATS server does not take a subject: {type(error).__name__}") from None
        self._subscriptions.append(subscription)
        return subscription

    def when_lost(self, tell: Callable[[], None]) -> None:
        """See Bus."""
        self._told_of_loss.append(tell)

    def forget(self, subscription: NatsSubscription) -> None:
        """It is served no longer."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def answer(self, client: BrokerClient, subscription: NatsSubscription, message: Msg) -> None:
        """Answer one message, on the connection that it came by or not at all."""
        try:
            given = await subscription.handler(message.data)
            if len(given) > MAX_PAYLOAD_BYTES:
                raise ValueError("the answer is too large")
        except Exception as error:
            self._say(f"bus: whoever serves {subscription.subject} failed: {type(error).__name__}")
            return
        if message.reply:
            with contextlib.suppress(errors.Error, OSError):
                await client.publish(message.reply, given)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run something that ends with the bus."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has gone

    async def _connect(self) -> None:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def set_lost() -> None:
            if not lost.done():
                lost.set_result(None)

        client = await connected(self._broker, self._tls, set_lost, self._failed)
        replies = Replies(client)
        try:
            await replies.begin()
            for subscription in tuple(self._subscriptions):
                await subscription.begin(client)
        except BaseException as error:
            await client.abandon()
            if isinstance(error, errors.Error | OSError):
                raise BusUnavailable(f"the NATS server does not take a subject: {type(error).__name__}") from None
            raise
        lost.add_done_callback(lambda _: replies.lose())
        self._client, self._replies, self._lost = client, replies, lost

    def _failed(self, error: Exception) -> None:
        if isinstance(error, errors.SlowConsumerError):
            self._say("bus: messages were dropped: they came faster than they could be taken over")

    async def _keep(self) -> None:
        while True:
            try:
                await self._keep_once()
            except Exception as error:  # one that was not foreseen must not leave the process without a bus for ever
                self._say(f"bus: internal error: {fault_place(error)}")
                await asyncio.sleep(_FIRST_PAUSE)

    async def _keep_once(self) -> None:
        """Until the connection is lost and there is another."""
        if self._client is not None:
            await self._watch(self._client)
            self._say(f"bus: the NATS server at {self._broker.told} was lost")
            await self._let_go()
            for tell in self._told_of_loss:
                tell()
        await self._connect_again()
        self._say(f"bus: the NATS server at {self._broker.told} is connected again")

    async def _connect_again(self) -> None:
        pause, told = _FIRST_PAUSE, ""
        while True:
            try:
                await self._connect()
                return
            except BusUnavailable as error:
                if str(error) != told:
                    told = str(error)
                    self._say(f"bus: {told}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _watch(self, client: BrokerClient) -> None:
        """Returns when the connection is lost, or does not answer."""
        while not self._lost.done():
            await asyncio.wait((self._lost,), timeout=_LOOK_SECONDS)
            try:
                await client.flush(_ANSWER_SECONDS)
            except (errors.Error, OSError):
                return

    async def _let_go(self) -> None:
        client, self._client = self._client, None
        if not self._lost.done():
            self._lost.set_result(None)
        if client is not None:
            with contextlib.suppress(errors.Error, OSError):
                await client.abandon()

    async def close(self) -> None:
        """See Bus."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        await self._let_go()
        tasks = list(self._tasks)
        await asyncio.sleep(0)  # whoever waits hears first that the bus is gone
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def open_nats_bus(
    url: Secret, say: Callable[[str], None], tls: ssl.SSLContext | None = None, *, may_be_away: bool = False
) -> NatsBus:
    """A bus over the server that `url` names, connected unless that `may_be_away`.

    `tls`: for `tls://`, instead of the system's authorities. Raises ValueError for what is no such URL, and
    BusUnavailable with the reason and what to do; neither repeats it.
    """
    bus = NatsBus(parse_broker(url), say, tls)
    await bus.open(may_be_away=may_be_away)
    return bus
