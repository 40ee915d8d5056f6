"""Callers of runners' models, who never stop asking, and judge every byte of what they get."""

import asyncio
import json
import time
from dataclasses import dataclass

from bench.fault_cells import Answer
from bench.fault_clients import read_answer
from bench.runner_machine import ERROR_CANARY, completion, stream

PROMPT_CANARY = "a-prompt-that-no-log-may-hold"
WELL = "200 whole"
LEFT_ALONE = "broken"
"""The connection ended before the answer, and the client sees that."""
CODES = {
    "no_provider_available": {503},
    "runner_offline": {503},
    "runner_busy": {429},
    "runner_model_not_allowed": {403},
    "runner_proxy_timeout": {504},
    "runner_request_too_large": {413},
    "runner_frame_too_large": {502},
    "runner_response_limit": {502},
    "runner_proxy_error": {503},
    "runner_upstream_error": set(range(400, 600)),
    "runner_upstream_unavailable": {502},
    "runner_upstream_read_error": {502},
}
"""What the data listener may say, and with which statuses."""
LONGEST_SECONDS = 62.0 + 10.0
"""The idle limit, the grace of whoever asks, and air for a busy machine."""
_ERROR_EVENT = b'data: {"error":'
_PAUSE_SECONDS, _REFUSED_PAUSE_SECONDS = 0.02, 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    nonce: str
    model: str
    began: float
    ended: float
    end: str
    """`200 whole`, `STATUS CODE`, `cut: CODE`, `broken`, or what was wrong."""


class Wrong(Exception):
    """An answer that must not be."""


def judged(answer: Answer, nonce: str, events: int, *, streams: bool) -> str:
    """How it ended. Raises Wrong."""
    if ERROR_CANARY.encode() in answer.body:
        raise Wrong("an upstream's words reached a caller")
    if not answer.complete:
        return LEFT_ALONE
    if answer.status != 200:
        code = json.loads(answer.body)["error"]["code"]
        if answer.status not in CODES.get(code, ()):
            raise Wrong(f"{answer.status} {code}")
        return f"{answer.status} {code}"
    expected = stream(nonce, events) if streams else completion(nonce)
    if answer.body == expected:
        return WELL
    before, found, error = answer.body.rpartition(_ERROR_EVENT)
    if not found or not error.endswith(b"}\n\n") or not expected.startswith(before):
        raise Wrong(f"taken for whole: {answer.body[-300:]!r}")
    return f"cut: {json.loads(found[6:] + error)['error']['message'].removeprefix('response truncated: ')}"


async def ask(port: int, model: str, nonce: str, *, streams: bool, events: int = 20, mode: str = "") -> Call:
    """One request, to its end."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(2 * LONGEST_SECONDS):
            answer = await _answer(port, model, nonce, streams=streams, events=events, mode=mode)
        end = judged(answer, nonce, events, streams=streams) if not mode or answer.status != 200 else _cut(answer)
    except Wrong as error:
        end = f"WRONG: {error}"
    except TimeoutError:
        end = "WRONG: no end"
    except (OSError, asyncio.IncompleteReadError):
        end = LEFT_ALONE
    return Call(nonce, model, began, time.monotonic(), end)


def _cut(answer: Answer) -> str:
    """Of an upstream that misbehaves: whatever came, its end must be told."""
    _, found, error = answer.body.rpartition(_ERROR_EVENT)
    if not answer.complete or not found or not error.endswith(b"}\n\n") or b"[DONE]" in answer.body:
        raise Wrong(f"taken for whole: complete={answer.complete} {answer.body[-300:]!r}")
    return f"cut: {json.loads(found[6:] + error)['error']['message'].removeprefix('response truncated: ')}"


async def _answer(port: int, model: str, nonce: str, *, streams: bool, events: int, mode: str) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        wanted = {"model": model, "stream": streams, "nonce": nonce, "events": events}
        wanted["messages"] = [{"role": "user", "content": PROMPT_CANARY}]
        if mode:
            wanted["mode"] = mode
        body = json.dumps(wanted).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return await read_answer(reader)
    finally:
        writer.transport.abort()


class Callers:
    """Two that stream and one that does not, for each pair of a model and a data listener."""

    def __init__(self, events: int) -> None:
        """`events`: of a stream; what does not stream takes as long."""
        self._events = events
        self.calls: list[Call] = []
        self.doors: list[tuple[str, list[int]]] = []
        """Models, and the ports of the data listeners that serve them."""
        self._going = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._under_way = 0
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, *doors: tuple[str, list[int]]) -> None:
        """Ask, until the loop ends."""
        for model, ports in doors:
            self.doors.append((model, ports))
            for number, streams in enumerate((True, True, False)):
                task = asyncio.get_running_loop().create_task(self._work(model, ports, number, streams=streams))
                self._tasks.add(task)
        self._going.set()

    async def _work(self, model: str, ports: list[int], number: int, *, streams: bool) -> None:
        while True:
            await self._going.wait()
            self._under_way += 1
            self._idle.clear()
            try:
                call = await ask(
                    ports[number % len(ports)], model, self.nonce(model), streams=streams, events=self._events
                )
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._idle.set()
            self.calls.append(call)
            await asyncio.sleep(_PAUSE_SECONDS if call.end == WELL else _REFUSED_PAUSE_SECONDS)

    def nonce(self, model: str) -> str:
        """One that was never used, and tells whose model it is for."""
        self._count += 1
        return f"{model}-{self._count}"

    async def hush(self) -> None:
        """Ask no more, and wait for what is under way."""
        self._going.clear()
        await self._idle.wait()

    async def go_on(self) -> None:
        """After `hush`."""
        self._going.set()

    async def burst(self, model: str, port: int, size: int) -> list[Call]:
        """So many at once."""
        asked = [ask(port, model, self.nonce(model), streams=True, events=5) for _ in range(size)]
        calls = await asyncio.gather(*asked)
        self.calls += calls
        return list(calls)
