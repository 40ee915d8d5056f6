"""What is measured and how good it has to be: workloads, their requests on the wire, and targets.

It starts nothing. Sizes are bytes.
"""

import enum
import json
from dataclasses import dataclass


class Surface(enum.Enum):
    """How the client reaches the proxy."""

    PLAIN = "plain"
    TLS = "tls"
    """nginx and haproxy terminate TLS; Pointsman terminates it inside its CONNECT tunnel."""


class Kind(enum.Enum):
    """What the scripted upstream answers; it has one port for each."""

    SMALL = "small"
    BURST = "burst"
    PACED = "paced"


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to measure, the same for every candidate."""

    name: str
    title: str
    surface: Surface
    kind: Kind
    request_bytes: int
    """Size of the JSON body."""
    connections: int
    expect_bytes: int
    """Size of every answer's body; another size is an error. 0 for paced streams, which are checked by event."""


SMALL_ANSWER = 700
BURST_ANSWER = 500 * 200 + len("data: [DONE]\n\n")
SMALL_BODY = 1024
LARGE_BODY = 200 * 1024
STREAMS = 1000
EVENTS_PER_SECOND = 10

WORKLOADS = (
    Workload("small", "W1 1 KiB → 700 B", Surface.PLAIN, Kind.SMALL, SMALL_BODY, 32, SMALL_ANSWER),
    Workload("one", "L1 the same, 1 connection", Surface.PLAIN, Kind.SMALL, SMALL_BODY, 1, SMALL_ANSWER),
    Workload("large", "W2 200 KiB → 700 B", Surface.PLAIN, Kind.SMALL, LARGE_BODY, 8, SMALL_ANSWER),
    Workload("burst", "W3 500 events at once", Surface.PLAIN, Kind.BURST, SMALL_BODY, 8, BURST_ANSWER),
    Workload("small-tls", "W1 over TLS", Surface.TLS, Kind.SMALL, SMALL_BODY, 32, SMALL_ANSWER),
    Workload("large-tls", "W2 over TLS", Surface.TLS, Kind.SMALL, LARGE_BODY, 8, SMALL_ANSWER),
    Workload("burst-tls", "W3 over TLS", Surface.TLS, Kind.BURST, SMALL_BODY, 8, BURST_ANSWER),
    Workload("paced", "P 1,000 slow streams", Surface.PLAIN, Kind.PACED, SMALL_BODY, STREAMS, 0),
    Workload("paced-tls", "P over TLS", Surface.TLS, Kind.PACED, SMALL_BODY, STREAMS, 0),
)


class Figure(enum.Enum):
    """What a target is about."""

    CPU = "CPU"
    ADDED = "added p50"
    RSS = "RSS per stream"
    LATENESS = "lateness p99"


@dataclass(frozen=True, slots=True)
class Target:
    """An upper bound on Pointsman's figure: a ratio to a peer's, or absolute (µs, KiB) where `against` is empty."""

    workload: str
    figure: Figure
    bound: float
    against: str = ""


# The bounds are the project's own (issue 2, "How good").
TARGETS = (
    Target("small", Figure.CPU, 2.5, "nginx"),
    Target("small", Figure.CPU, 0.8, "vllm-router"),
    Target("one", Figure.ADDED, 100.0),
    Target("large", Figure.CPU, 3.0, "nginx"),
    Target("large", Figure.CPU, 0.4, "vllm-router"),
    Target("burst", Figure.CPU, 1.1, "nginx"),
    Target("small-tls", Figure.CPU, 2.0, "nginx"),
    Target("large-tls", Figure.CPU, 3.0, "nginx"),
    Target("burst-tls", Figure.CPU, 1.0, "nginx"),
    Target("paced", Figure.CPU, 1.6, "nginx"),
    Target("paced", Figure.RSS, 25.0),
    Target("paced", Figure.LATENESS, 2.0, "nginx"),
    Target("paced-tls", Figure.CPU, 1.6, "nginx"),
    Target("paced-tls", Figure.RSS, 60.0),
    Target("paced-tls", Figure.LATENESS, 2.0, "nginx"),
)

_SYSTEM = "You are a careful engineering assistant. Answer from the files you were given, and say what you don't know."
_TURNS = (
    ("user", "Here is the failing test and the module it covers. Find the cause:\n```python\ndef test_reads_head():\n"),
    ("assistant", 'The head is split at "\\r\\n\\r\\n", yet the reader keeps only its last 3 bytes — see `held`.\n'),
    ("user", "What does the café's menu endpoint return when the list is empty? {\"items\": []} or 404? I'd say ½.\n"),
)


CLIENT_MODEL = "client-chosen-model"


def chat_body(size: int, model: str = CLIENT_MODEL) -> bytes:
    """A chat request of exactly `size` bytes: `model` first, a realistic history, as the official SDK encodes it."""
    messages: list[dict[str, str]] = [{"role": "system", "content": _SYSTEM}]
    while True:
        role, text = _TURNS[(len(messages) - 1) % len(_TURNS)]
        longer = [*messages, {"role": role, "content": text * 8 if size > SMALL_BODY else text}]
        if len(_encode(longer, model)) > size:
            break
        messages = longer
    messages[-1]["content"] += "." * (size - len(_encode(messages, model)))
    return _encode(messages, model)


def _encode(messages: list[dict[str, str]], model: str) -> bytes:
    body = {"model": model, "messages": messages, "temperature": 0.2, "stream": True}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def request_on_the_wire(size: int, model: str = CLIENT_MODEL) -> bytes:
    """The whole request with a body of `size` bytes."""
    body = chat_body(size, model)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: inference.local\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nUser-Agent: OpenAI/Python 3.0.0\r\nAuthorization: Bearer placeholder\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
