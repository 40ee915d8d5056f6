"""A client of the data listener that keeps its connection."""

import http.client
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, read to its end."""

    status: int
    fields: dict[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of each event of a stream."""
        return [line.removeprefix("data: ") for line in self.body.decode().splitlines() if line]


class ModelClient:
    """Raises what http.client does when an answer does not come, or not to its end."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __enter__(self) -> "ModelClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, model: str, *, stream: bool = False) -> Said:
        """One chat completion."""
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
        fields = {"content-type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), fields)
        response = self._connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Said(response.status, named, response.read())
