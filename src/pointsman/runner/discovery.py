"""Which models servers on this machine offer: asked of the usual places, briefly, and never believed beyond a bound."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pointsman.core.runner_endpoint import RunnerEndpoint
from pointsman.runner.model_server import Broken, ModelServer, Unavailable, dial

USUAL_PORTS = {11434: "Ollama", 1234: "LM Studio", 8000: "vLLM", 8080: "llama.cpp"}
MOST_URLS = 16
"""In one discovery, as the other numbers (DESIGN section 7)."""
MOST_MODELS = 256
MOST_BYTES = 1024 * 1024
PROBE_SECONDS = 2.0
_LONGEST_NAME = 256
_OK = 200


class _Model(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Model]


_DECODER = msgspec.json.Decoder(_List)


@dataclass(frozen=True, slots=True)
class Probed:
    """What one server offers."""

    endpoint: RunnerEndpoint
    models: tuple[str, ...] = ()
    """Names, in the server's order."""
    problem: str = ""
    """Why there are none, or not all of them; empty when nobody listens at a usual place."""
    is_there: bool = True
    """Whether somebody listens."""


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Bounds of one probe."""

    models: int = MOST_MODELS
    size: int = MOST_BYTES
    seconds: float = PROBE_SECONDS


DEFAULT_PROBE_LIMITS = ProbeLimits()


def places(extra: Sequence[RunnerEndpoint], usual_ports: Sequence[int] = tuple(USUAL_PORTS)) -> list[RunnerEndpoint]:
    """Where to look, each once. Raises ValueError for more than 16."""
    found = list(dict.fromkeys([*(RunnerEndpoint("localhost", port) for port in usual_ports), *extra]))
    if len(found) > MOST_URLS:
        raise ValueError(f"{len(found)} addresses with the usual ones; at most {MOST_URLS}")
    return found


async def discover(endpoints: Sequence[RunnerEndpoint], limits: ProbeLimits = DEFAULT_PROBE_LIMITS) -> list[Probed]:
    """Ask all of them at once; the answers are in the order of the places."""
    return list(await asyncio.gather(*(probe(endpoint, limits) for endpoint in endpoints)))


async def probe(endpoint: RunnerEndpoint, limits: ProbeLimits = DEFAULT_PROBE_LIMITS) -> Probed:
    """Ask one server."""
    try:
        async with asyncio.timeout(limits.seconds):
            server = await dial(endpoint, limits.seconds)
            try:
                return _read(endpoint, await _answer(server, endpoint, limits), limits)
            finally:
                server.close()
    except Unavailable:
        return Probed(endpoint, problem="nobody listens there", is_there=False)
    except TimeoutError:
        return Probed(endpoint, problem=f"did not answer within {limits.seconds:g} s")
    except Broken:
        return Probed(endpoint, problem="broke its answer off, or does not speak HTTP")
    except ValueError as error:
        return Probed(endpoint, problem=str(error))


async def _answer(server: ModelServer, endpoint: RunnerEndpoint, limits: ProbeLimits) -> bytes:
    request = b"GET /v1/models HTTP/1.1\r\nhost: %b\r\naccept: application/json\r\n"
    request += b"accept-encoding: identity\r\nconnection: close\r\n\r\n"
    head = await server.ask(request % endpoint.authority.encode())
    if head.status != _OK:
        raise ValueError(f"answered with status {head.status}, not with a list of models")
    body = bytearray()
    while data := await server.read():
        body += data
        if len(body) > limits.size:
            raise ValueError(f"answered with over {limits.size} bytes; none of its models is listed")
    return bytes(body)


def _read(endpoint: RunnerEndpoint, body: bytes, limits: ProbeLimits) -> Probed:
    try:
        body.decode()  # what a decoder skips it does not look at
        listed = _DECODER.decode(body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("answered with something else than a list of models") from None
    names = list(dict.fromkeys(model.id for model in listed))
    usable = [name for name in names if 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()]
    problems = []
    if len(usable) < len(names):
        problems.append(f"has {len(names) - len(usable)} models whose names are none; they are left out")
    if len(usable) > limits.models:
        problems.append(f"has {len(usable)} models; the first {limits.models} are listed")
    return Probed(endpoint, tuple(usable[: limits.models]), "; ".join(problems))
