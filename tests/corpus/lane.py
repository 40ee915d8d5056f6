"""One proxy process and its recording upstream, through which rows go one after the other."""

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.corpus.rows import Row
from tests.support.processes import ProxyProcess, proxy_process
from tests.support.raw_client import RawClient, post
from tests.support.recorder import Recorder

_CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"
_MARKER = b'{"model":"real-model","marker":1}'
_STATUS = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2}) ")
_QUIET_SECONDS = 0.4
_PATIENCE_SECONDS = 45.0
"""More than the proxy's deadlines for a head and for the progress of a body."""
_ROUTES = """routes:
  - name: inference.local
    endpoint: {url}
    model: real-model
    provider_type: openai
    api_key: corpus
    protocols: [openai_chat_completions, openai_completions, openai_responses, anthropic_messages, model_discovery]
"""


@dataclass(slots=True)
class Result:
    """What became of one row, aimed in one way."""

    row: Row
    aim: str
    statuses: tuple[int, ...] = ()
    """Of final answers, in order."""
    ended: bool = False
    """Whether the proxy ended the connection."""
    upstream: int = 0
    """Requests that reached the upstream."""

    @property
    def ours(self) -> str:
        """In the words of the references."""
        refusals = [status for status in self.statuses if status >= 400]
        if self.upstream:
            return f"fwd{self.upstream}" + (f"+{refusals[-1]}" if refusals else "")
        return f"rej{refusals[-1]}" if refusals else "closed" if self.ended else "waits"

    @property
    def refused(self) -> bool:
        """An error status or a close, and nothing sent on."""
        return not self.upstream and (self.ended or any(status >= 400 for status in self.statuses))


class Lane:
    """Sends rows. One that gets neither answer nor close is put aside, until `finish` has waited for its deadline."""

    def __init__(self, proxy: ProxyProcess, recorder: Recorder) -> None:
        self._proxy = proxy
        self._recorder = recorder
        self._waiting: list[tuple[RawClient, Result]] = []

    def send(self, row: Row, aim: str, data: bytes) -> Result:
        """One row through a tunnel of its own."""
        result = Result(row, aim)
        seen = len(self._recorder.requests)
        client = self._enter()
        with contextlib.suppress(OSError):  # refused before all of it was taken
            client.send(data)
        self._listen(client, result, _QUIET_SECONDS)
        if result.statuses or result.ended:
            client.close()
        else:
            self._waiting.append((client, result))
        self._pass_marker()
        arrived = [request for request in self._recorder.requests[seen:] if request.body != _MARKER]
        result.upstream = max(len(arrived), sum(status < 400 for status in result.statuses))
        return result

    def finish(self) -> None:
        """Wait for the deadlines of what was put aside."""
        seen = len(self._recorder.requests)
        end = time.monotonic() + _PATIENCE_SECONDS
        for client, result in self._waiting:
            self._listen(client, result, max(end - time.monotonic(), _QUIET_SECONDS))
            client.close()
            result.upstream += sum(status < 400 for status in result.statuses)
        if len(self._recorder.requests) != seen:
            raise AssertionError("a request reached the upstream without another byte of its client")
        self._waiting = []

    def _enter(self) -> RawClient:
        client = RawClient(socket.create_connection(("127.0.0.1", self._proxy.port), 20))
        client.send(_CONNECT)
        client.read_until(b"\r\n\r\n")
        client.start_tls(self._proxy.client_context(), "inference.local")
        return client

    def _listen(self, client: RawClient, result: Result, seconds: float) -> None:
        """Until the connection ends, or nothing has come for that long."""
        received = b""
        client.sock.settimeout(seconds)
        try:
            while piece := client.sock.recv(65536):
                received += piece
                client.sock.settimeout(min(seconds, _QUIET_SECONDS))
            result.ended = True
        except TimeoutError:
            pass
        except OSError:
            result.ended = True
        result.statuses += tuple(int(status) for status in _STATUS.findall(received))

    def _pass_marker(self) -> None:
        """What the row sent on has been recorded when this has been answered."""
        with self._enter() as client:
            client.send(post(_MARKER))
            if client.answer().status != 200:
                raise AssertionError("the proxy no longer answers a sound request")


@contextlib.contextmanager
def open_lane(directory: Path) -> Iterator[Lane]:
    """Start a proxy and an upstream for it; both end with the lane."""
    directory.mkdir()
    with Recorder() as recorder, proxy_process(_ROUTES.format(url=recorder.url), directory) as proxy:
        yield Lane(proxy, recorder)
        if proxy.process.poll() is not None:
            raise AssertionError(f"the proxy ended: {proxy.lines[-3:]}")
