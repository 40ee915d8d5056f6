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
    """By lower-case name; several lines of one name with commas between."""
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

    def __init__(self, port: int, key: str = "") -> None:
        self._fields = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def __enter__(self) -> "ModelClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, model: str, *, stream: bool = False, text: str = "hello") -> Said:
        """One chat completion."""
        response = self.begin(model, stream=stream, text=text)
        return Said(response.status, fields_of(response), response.read())

    def begin(self, model: str, *, stream: bool = True, text: str = "hello") -> http.client.HTTPResponse:
        """One whose answer's head has come; its body is read by whoever asks."""
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), self._fields)
        return self._connection.getresponse()


def fields_of(response: http.client.HTTPResponse) -> dict[str, str]:
    """See `Said.fields`."""
    named: dict[str, str] = {}
    for name, value in response.getheaders():
        known = named.get(name.lower())
        named[name.lower()] = value if known is None else f"{known}, {value}"
    return named
