"""A hostile runner, in a process of its own, against a gateway: what a client sees, and what it costs anybody else."""

import asyncio
import contextlib
import gc
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from tests.component.test_runner_exchanges import run
from tests.support.hostile_runner import ACTS, EVIL, GREETINGS
from tests.support.loop_watch import LoopWatch
from tests.support.runner_bench import ACCOUNT, MODEL, OTHER, OTHER_MODEL, RUNNER, TOKEN, Bench, Runner, Told, bench
from tests.support.waiting import until

_MODELS = {"alias": MODEL, "other": OTHER_MODEL}
_IMPATIENT = replace(DEFAULT_RUNNER_LIMITS, idle_seconds=2.0)
_LISTENING = replace(DEFAULT_RUNNER_LIMITS, silence_seconds=1.5)


class Program:
    """The hostile runner, which does one act after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @contextlib.asynccontextmanager
    async def playing(self, port: int, act: str, *, closes: bool) -> AsyncIterator[dict[str, Any]]:
        """What is known of it when it has ended: the gateway's close code, and what it asked."""
        found: dict[str, Any] = {}
        self._write(json.dumps({"port": port, "runner": RUNNER, "token": TOKEN, "act": act}))
        try:
            yield found
        finally:
            self._write("10" if closes else "0")
            assert self._process.stdout is not None
            found.update(json.loads(await asyncio.to_thread(self._process.stdout.readline)))


@pytest.fixture(scope="module")
def hostile() -> Iterator[Program]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.hostile_runner"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        yield Program(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


async def _behave(runner: Runner) -> None:
    """An honest runner, which streams."""
    left: dict[str, list[str]] = {}
    while True:
        request = await runner.receive()
        lines = left.setdefault(request["request_id"], ["data: 1", "data: 2", "data: [DONE]"])
        if request["operation"] != "cancel":
            line = lines.pop(0)
            await runner.answer(request, line, done=not lines)


@contextlib.asynccontextmanager
async def _beside(made: Bench) -> AsyncIterator[list[Told]]:
    """Another runner's client, who asks all the time; and what it got."""
    got: list[Told] = []

    async def ask() -> None:
        while True:
            got.append(await made.ask(model="other", stream=True))
            await asyncio.sleep(0.05)

    async with made.runner(runner_id=OTHER) as honest, asyncio.TaskGroup() as tasks:
        working = [tasks.create_task(_behave(honest)), tasks.create_task(ask())]
        await until(lambda: bool(got))
        got.clear()
        yield got
        await until(lambda: bool(got))
        for each in working:
            each.cancel()


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[LoopWatch]:
    """How late this loop is: the gateway's, and all clients'; the hostile runner has its own."""
    gc.freeze()  # what the other tests left need not be looked through meanwhile
    watch = LoopWatch(asyncio.get_running_loop())
    try:
        yield watch
    finally:
        watch.close()
        gc.unfreeze()


def told(answer: Told) -> tuple[int, str]:
    """Status and code; of a stream that was cut, why."""
    if "text/event-stream" not in answer.head:
        return (answer.status, "" if answer.status == 200 else answer.code)
    last = answer.body.removesuffix(b"\n\n").rpartition(b"data: ")[2]
    return (answer.status, "" if last == b"[DONE]" else json.loads(last)["error"]["message"].partition(": ")[2])


@dataclass(frozen=True, slots=True)
class Row:
    status: int
    code: str
    closes: int | None = None
    """The code; None: the line goes on."""
    streams: bool = False
    limits: RunnerLimits = DEFAULT_RUNNER_LIMITS


OFFLINE = "runner_offline"
FINE = Row(200, "")


def ends(code: int = 1008, why: str = "runner_proxy_error", **more: Any) -> Row:
    return Row(503, why, code, **more)


def cut(why: str, closes: int | None = None, **more: Any) -> Row:
    return Row(200, why, closes, streams=True, **more)


TABLE: dict[str, Row] = {
    "sprays ids": FINE,
    "is late after done": FINE,
    "is late after cancel": Row(504, "runner_proxy_timeout", limits=_IMPATIENT),
    "two frames for one": cut(OFFLINE, 1008),
    "a hundred frames for one": cut(OFFLINE, 1008),
    "hello again": ends(),
    "another type": ends(),
    "no type": ends(),
    "the gateway's own type": ends(),
    "status 199": ends(),
    "status 101": ends(),
    "status 600": ends(),
    "status 0": ends(),
    "status -200": ends(),
    "status true": ends(),
    "status null": ends(),
    "status in quotes": ends(),
    "status 1e3": ends(),
    "status 2e2": ends(),
    "status 200.0": ends(),
    "status of 5,000 digits": ends(),
    "status 1e999999": ends(),
    "status 302": Row(502, "runner_upstream_error"),
    "status 418 and a page": Row(418, "runner_upstream_error"),
    "error of 128 characters": Row(502, "runner_upstream_error"),
    "error of 129 characters": ends(),
    "error with a field": Row(502, "runner_upstream_error"),
    "error of the gateway's own": Row(401, "runner_upstream_error"),
    "id with a field": ends(),
    "id of 129 characters": ends(),
    "id of a number": ends(),
    "data of a list": ends(),
    "done of a number": ends(),
    "data of 64 KiB and 1": Row(502, "runner_frame_too_large"),
    "a frame of 72 KiB and 1": ends(1009),
    "a frame of 392 KiB and 1": ends(1009),
    "a frame of 16 MiB": ends(1009),
    "a frame of 8 EiB": ends(1009),
    "no JSON": ends(),
    "half of JSON": ends(),
    "nothing": ends(),
    "a nest of objects": ends(),
    "a nest of lists": ends(),
    "keys by the thousand": FINE,
    "a number of 60,000 digits": FINE,
    "keys twice": FINE,
    "half a surrogate": ends(),
    "no UTF-8": ends(1007),
    "no UTF-8 in bytes": ends(),
    "a frame in bytes": ends(),
    "a frame without a mask": ends(1002),
    "a reserved bit": ends(1002),
    "a reserved kind": ends(1002),
    "a ping of 126 bytes": ends(1002),
    "a part of nothing": ends(1002),
    "a message within a message": ends(1002),
    "a flood of empty parts": ends(),
    "a flood of parts": ends(),
    "a flood of pings": ends(),
    "a flood of pings whose echo is not read": ends(),
    "a flood of heartbeats": FINE,
    "a flood of large frames": FINE,
    "a trickle": ends(4002, OFFLINE, limits=_LISTENING),
    "mute": Row(504, "runner_proxy_timeout", limits=_IMPATIENT),
    "mute after three": cut("runner_proxy_timeout", limits=_IMPATIENT),
    "content with done": cut("upstream read error"),
    "an end without [DONE]": cut("upstream read error"),
    "[DONE] twice": replace(FINE, streams=True),
    "[DONE] twice, never done": replace(FINE, streams=True, closes=1008),
    "a line after [DONE]": replace(FINE, streams=True),
    "LF in a line": Row(503, "runner_proxy_error", streams=True),
    "CR in a line": Row(503, "runner_proxy_error", streams=True),
    "CRLF at a line's end": Row(503, "runner_proxy_error", streams=True),
    "LF in a later line": cut("runner_proxy_error"),
    "an error in the middle": cut("runner_upstream_error"),
    "a page for a completion": Row(502, "runner_upstream_error"),
    "a list for a completion": Row(502, "runner_upstream_error"),
}
HEAVY = frozenset(act for act in TABLE if act.startswith(("sprays", "a flood", "a frame of", "a nest", "keys")))
"""What is to keep a gateway busy."""
_LAG_MS = 50
_ACTS = [pytest.param(act, marks=pytest.mark.alone) if act in HEAVY else act for act in TABLE]


@pytest.mark.guarantee("N16")
@pytest.mark.parametrize("act", _ACTS)
def test_a_hostile_runner_costs_its_own_client_a_bounded_error_and_nobody_else_anything(
    hostile: Program, act: str
) -> None:
    row = TABLE[act]

    async def work() -> None:
        log = io.StringIO()
        async with bench(row.limits, None, _MODELS, log) as made, _beside(made) as others:
            async with hostile.playing(made.control, act, closes=row.closes is not None) as found, watched() as watch:
                await until(lambda: made.active == 0)
                answer = await made.ask(stream=row.streams)
                assert told(answer) == (row.status, row.code)
                await until(lambda: made.active == (0 if row.closes is None else -1))
                again = await made.ask()  # it answers as it should from here on, if it is there
                assert told(again) == ((200, "") if row.closes is None else (503, OFFLINE))
                await until(lambda: len(others) > 2)
            assert found["closed"] == row.closes
            assert act not in HEAVY or watch.percentile_ms(0.99) < _LAG_MS
            assert {told(each) for each in others} == {(200, "")}
            assert EVIL not in f"{answer} {log.getvalue()} {made.said}"

    run(work)


def test_every_act_has_its_row() -> None:
    assert set(TABLE) == set(ACTS) - {"reads nothing"}


@pytest.mark.guarantee("N16")
@pytest.mark.parametrize("greeting", GREETINGS)
def test_who_does_not_say_hello_as_it_should_gets_no_line(hostile: Program, greeting: str) -> None:
    async def work() -> None:
        log = io.StringIO()
        limits = _LISTENING if greeting == "half a hello" else DEFAULT_RUNNER_LIMITS
        async with bench(limits, None, _MODELS, log) as made, _beside(made) as others:
            async with hostile.playing(made.control, greeting, closes=True) as found:
                await until(lambda: len(others) > 1)
                assert told(await made.ask()) == (503, OFFLINE)
                assert made.hub.active_requests(ACCOUNT, RUNNER) is None
            assert found == {"closed": 1009 if "72 KiB" in greeting else 1008, "operations": []}
            assert f"runner {RUNNER} of {ACCOUNT} is connected" not in made.said
            assert {told(each) for each in others} == {(200, "")}
            assert EVIL not in f"{log.getvalue()} {made.said}"

    run(work)


@pytest.mark.guarantee("N3")
def test_the_id_of_another_runners_request_is_nothing_to_a_runner() -> None:
    async def work() -> None:
        log = io.StringIO()
        async with (
            bench(models=_MODELS, lines=log) as made,
            made.runner() as thief,
            made.runner(runner_id=OTHER) as honest,
        ):
            asked = asyncio.ensure_future(made.ask(model="other"))
            request = await honest.receive()
            for more in ({"data": f'{{"x":"{EVIL}"}}', "done": True}, {"error": EVIL}, {"data": "{}", "status": 500}):
                await thief.answer(request, **more)
            await thief.send({"type": "heartbeat"})
            stolen = asyncio.ensure_future(made.ask())
            await thief.answer(await thief.receive(), "{}", done=True)
            assert told(await stolen) == (200, "")  # so what it sent before was looked at
            assert not asked.done()
            await honest.answer(request, '{"right":true}', done=True)
            assert (await asked).body == b'{"right":true}'
            assert EVIL not in f"{log.getvalue()} {made.said}"

    run(work)


@pytest.mark.guarantee("N12")
@pytest.mark.guarantee("N16")
def test_a_runner_that_does_not_read_costs_its_own_clients_their_time_and_loses_its_line(hostile: Program) -> None:
    async def work() -> None:
        limits = replace(_LISTENING, idle_seconds=0.7)
        pad = "x" * 1_000_000

        async with bench(limits, None, _MODELS) as made:
            async with hostile.playing(made.control, "reads nothing", closes=False), asyncio.TaskGroup() as tasks:
                await until(lambda: made.active == 0)
                seen = set()
                while made.active >= 0:
                    asked = [tasks.create_task(made.ask(pad=pad)) for _ in range(4)]
                    seen |= {told(await each) for each in asked}
                    assert made.active <= 0
            assert seen <= {(504, "runner_proxy_timeout"), (503, OFFLINE)}
            assert (504, "runner_proxy_timeout") in seen
            assert told(await made.ask()) == (503, OFFLINE)

    run(work)


@pytest.mark.alone
@pytest.mark.guarantee("N1")
def test_a_thousand_tokens_that_are_not_valid_are_a_thousand_refusals_and_no_lag() -> None:
    request = (
        f"GET /api/v1/runners/{RUNNER}/ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\nx-runner-token: {}\r\n\r\n"
    )

    async def refused(port: int, number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.format(f"{EVIL}-{number}").encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def work() -> None:
        async with bench(models=_MODELS) as made, _beside(made) as others, watched() as watch:
            for first in range(0, 1000, 50):
                answers = await asyncio.gather(*(refused(made.control, first + each) for each in range(50)))
                assert {each.partition(b"\r\n")[0] for each in answers} == {b"HTTP/1.1 401 Unauthorized"}
                assert EVIL.encode() not in b"".join(answers)
            assert watch.percentile_ms(0.99) < 2 * _LAG_MS  # of whom knocks, too: they share the loop
            assert {told(each) for each in others} == {(200, "")}
            assert EVIL not in str(made.said)

    run(work)
