"""What one runner is still to be sent, in order. Whatever was cancelled before it went out never does."""

import asyncio

from pointsman.wire.runner_frames import CANCEL, START, ModelRequest, encode_frame

MOST_UNSENT = 16
"""Waiting for a runner that reads slowly: a start and a cancel of each of its requests, twice over."""


class UnsentFrames:
    """A client that asks and leaves, again and again, fills nothing here: its requests take each other's place."""

    def __init__(self) -> None:
        self._waiting: list[ModelRequest] = []
        self._has_some = asyncio.Event()

    def add(self, request: ModelRequest) -> bool:
        """Whether there was room for it."""
        if request.operation == CANCEL:
            mine = [each for each in self._waiting if each.request_id == request.request_id]
            for each in mine:
                self._waiting.remove(each)
            if any(each.operation == START for each in mine):
                return True  # the runner has never heard of it
        if len(self._waiting) >= MOST_UNSENT:
            return False
        self._waiting.append(request)
        self._has_some.set()
        return True

    async def take(self) -> bytes:
        """The next frame, as soon as there is one."""
        while not self._waiting:
            self._has_some.clear()
            await self._has_some.wait()
        return encode_frame(self._waiting.pop(0))
