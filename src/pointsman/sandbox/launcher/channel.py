"""The supervisor's end of the conversation, as the launcher sees it."""

import json
import os
import socket
from typing import Any

COULD_NOT_START = 125


class Channel:
    """The supervisor's end of the conversation, as seen from here."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.set_inheritable(False)
        self.stage = "orders"
        """What is being done now: the word for it when it fails."""
        self._buffer = b""

    def receive(self) -> dict[str, Any]:
        """The next message; the end of the conversation is the end of this process."""
        while b"\n" not in self._buffer:
            data = self.socket.recv(1 << 18)
            if not data:
                os._exit(COULD_NOT_START)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, message: dict[str, Any], *descriptors: int) -> None:
        """A supervisor that is gone does not matter here: its death is noticed elsewhere."""
        try:
            socket.send_fds(self.socket, [json.dumps(message).encode() + b"\n"], descriptors, socket.MSG_DONTWAIT)
        except OSError:
            return

    def fail(self, error: BaseException) -> None:
        """Tell which stage went wrong, and how; the supervisor finds the words for the operator."""
        number = error.errno if isinstance(error, OSError) else None
        detail = str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
        self.send({"failed": self.stage, "errno": number, "detail": detail})
