"""Where a runner's model lives: on the runner's own loopback, spelled in exactly one way.

The same rule on both sides: the gateway registers no other address, and the runner calls no other. What is not spelled
canonically after the few harmless differences below is refused, so that no two programs can read it differently.
"""

import re
from dataclasses import dataclass

_URL = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.]+):(?P<port>[0-9]{1,9})(?P<path>/v1/?)"
)
_HOSTS = {"localhost": "localhost", "127.0.0.1": "127.0.0.1", "[::1]": "[::1]"}
_LONGEST = 256
"""Characters; the longest that is right has 31."""
_MOST_PORT = 65535


@dataclass(frozen=True, slots=True, order=True)
class RunnerEndpoint:
    """A base URL that ends in `/v1`, of a server on the runner's own machine."""

    host: str
    """`localhost`, `127.0.0.1` or `[::1]`."""
    port: int

    @property
    def authority(self) -> str:
        """What belongs into the Host header: some servers refuse any other."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Its one spelling; two endpoints are the same when these are."""
        return f"http://{self.authority}/v1"


def parse_runner_endpoint(text: str) -> RunnerEndpoint:
    """Raises ValueError, with a reason fit for whoever wrote it.

    Case, leading zeros of the port and one slash at the end make no difference; everything else does. `localhost`,
    `127.0.0.1` and `[::1]` may be three servers, so they stay three.
    """
    match = _URL.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or match["scheme"].lower() != "http":
        raise ValueError("is not of the form http://localhost:PORT/v1")
    host = _HOSTS.get(match["host"].lower())
    if host is None:
        raise ValueError("does not name this machine by localhost, 127.0.0.1 or [::1]")
    port = int(match["port"])
    if not 1 <= port <= _MOST_PORT:
        raise ValueError(f"has a port that is not between 1 and {_MOST_PORT}")
    return RunnerEndpoint(host, port)
