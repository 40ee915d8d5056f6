"""Requests over one connection to a NATS server: their answers all come on one subject of the connection's own.

The client's own requests cost a task and two waits more for each, and every event of a stream is one.
"""

import asyncio
from itertools import count

from nats.aio.client import NO_RESPONDERS_STATUS
from nats.aio.msg import Msg
from nats.js.api import Header

from pointsman.bus.answer import Answer, answered, settle
from pointsman.bus.interface import BusUnavailable, NoResponder
from pointsman.bus.nats_client import BrokerClient


class Replies:
    """Made for a connection; of no use when that has gone."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._numbers = count()
        self._waiting: dict[str, Answer] = {}
        self._is_lost = False

    async def begin(self) -> None:
        """Take answers from now on. Raises what the client raises."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def ask(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """See Bus.request. Raises what the client raises, too."""
        if self._is_lost:
            raise _lost()
        number = str(next(self._numbers))
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._client.publish(subject, payload, reply=f"{self._inbox}.{number}")
            return await answered(answer, subject, timeout_seconds)
        except NoResponder:
            raise NoResponder(f"nobody serves {subject}") from None
        finally:
            del self._waiting[number]

    async def _take(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is None:  # it came too late
            return
        status = message.headers.get(Header.STATUS) if message.headers else None
        settle(answer, NoResponder() if status == NO_RESPONDERS_STATUS else message.data)

    def lose(self) -> None:
        """The connection has gone: whoever waits is told."""
        self._is_lost = True
        for answer in self._waiting.values():
            settle(answer, _lost())


def _lost() -> BusUnavailable:
    return BusUnavailable("the NATS server was lost while an answer was waited for")
