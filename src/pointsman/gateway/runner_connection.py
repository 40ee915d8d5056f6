"""What the hub asks of a runner's websocket, whoever serves it."""

from typing import Protocol


class RunnerSocket(Protocol):
    """A websocket that was accepted. Text frames; what comes is bounded by whoever made it."""

    @property
    def awaits_served(self) -> bool:
        """Whether the runner is to be told once it is served."""

    async def receive(self) -> str | None:
        """The next frame; None when it has ended. Raises FrameError when it ended because of what came."""

    async def send(self, frame: bytes) -> None:
        """Returns when the system has taken it."""

    async def close(self, code: int) -> None:
        """End it; harmless when it has ended."""
