"""A client of a data worker that sees every line as it comes, and says how an answer ended.

Every request carries a nonce of its own in its prompt: whatever reached a model's server, and how often, can be told
by it afterwards.
"""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support import canary

LONG_TOKENS = 1800
"""Tokens of an answer that something is to happen in the midst of: more than a minute on a busy machine."""
PATIENCE = 75.0
"""Seconds for a line, or an end: more than every bound that is promised."""
_numbers = count(1)


def new_nonce() -> str:
    """The canary, and a number."""
    return f"{canary.PROMPT}-{next(_numbers):03}"


@dataclass(slots=True)
class Refusal:
    """An answer that is an error, before anything was streamed."""

    status: int
    code: str
    seconds: float
    """From the request to the end of the answer."""
    nonce: str

    def __str__(self) -> str:
        return f"{self.status} {self.code} after {self.seconds * 1000:.0f} ms"


@dataclass(slots=True)
class End:
    """How a stream ended."""

    lines: list[str]
    """Those that had not been read before."""
    is_whole: bool
    """Whether the framing of the body said that it ended."""

    @property
    def error(self) -> str:
        """The message of the error event it ended with, else nothing."""
        last = self.lines[-1].removeprefix("data: ") if self.lines else ""
        if not last.startswith("{") or "error" not in (event := json.loads(last)):
            return ""
        message: str = event["error"]["message"]
        return message

    @property
    def is_done(self) -> bool:
        return bool(self.lines) and self.lines[-1] == "data: [DONE]"


@dataclass(slots=True)
class Asking:
    """One request for a stream to one worker, sent."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    nonce: str
    lines: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.response.status

    def line(self) -> str:
        """The next one that is not blank, without its end; "" at the end of the body."""
        while line := self.response.readline():
            text = line.decode().rstrip("\r\n")
            if text:
                self.lines.append(text)
                return text
        return ""

    def read_lines(self, number: int) -> None:
        """So many. Raises AssertionError when there are not."""
        for _ in range(number):
            assert self.line(), f"the stream ended: {self.lines[-3:]}"

    def end(self) -> End:
        """Read to the end."""
        before = len(self.lines)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while self.line():
                pass
        # What is cut between two chunks is no error to readline, but the library still waits for another one.
        return End(self.lines[before:], self.response.chunk_left is None)

    def leave(self) -> None:
        """Close the connection."""
        if self.connection.sock is not None:  # the response may hold it already
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()


class Client:
    """Of one worker, with a key."""

    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self.key = key

    def send(self, model: str, **more: Any) -> tuple[http.client.HTTPConnection, str]:
        """The connection on which an answer will come, and the nonce."""
        nonce = str(more.pop("nonce", "") or new_nonce())
        messages = [{"role": "user", "content": f"Tell a very long story. {nonce}"}]
        body = {"model": model, "messages": messages, "seed": 1, "temperature": 0, **more}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        fields = {"content-type": "application/json", "authorization": f"Bearer {self.key}", "x-mine": self.key}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), fields)
        return connection, nonce

    def stream(self, model: str, **more: Any) -> Asking:
        """A stream that has begun, as long as the model's server can. Raises AssertionError for an error."""
        connection, nonce = self.send(model, **{"stream": True, "max_tokens": LONG_TOKENS, "ignore_eos": True, **more})
        response = connection.getresponse()
        assert response.status == 200, f"{response.status} {response.read()!r}"
        return Asking(connection, response, nonce)

    def refused(self, model: str, **more: Any) -> Refusal:
        """One that is answered with an error. Raises AssertionError when it is not."""
        began = time.monotonic()
        connection, nonce = self.send(model, **{"stream": True, "max_tokens": 4, **more})
        response = connection.getresponse()
        text = response.read()
        seconds = time.monotonic() - began
        connection.close()
        assert response.status != 200, f"{model} was answered: {text[:200]!r}"
        return Refusal(response.status, json.loads(text)["error"]["code"] or "", seconds, nonce)

    def works(self, model: str) -> str:
        """A short answer, streamed to [DONE]. Its nonce. Raises AssertionError."""
        asking = self.stream(model, max_tokens=4, ignore_eos=False)
        end = asking.end()
        asking.connection.close()
        assert end.is_done, f"no [DONE]: {end.lines[-3:]}"
        return asking.nonce


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> float:
    """How long it took, in seconds; failures of what is tried are not its end. Raises AssertionError."""
    began = time.monotonic()
    last = ""
    while time.monotonic() - began < seconds:
        try:
            if condition():
                return time.monotonic() - began
        except (AssertionError, OSError, http.client.HTTPException) as error:
            last = f": {error}"
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds:g} s{last}")
