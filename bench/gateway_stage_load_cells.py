"""Cells about what an operator does to requests that run: policies, prices, halts; and what the stages hold of them."""

import http.client
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.chain_world import ChainWorld
from bench.gateway_cells import ChainCell, Options, fake_clock
from bench.gateway_stage_cells import stages, told
from bench.gateway_world import Seen
from bench.processes import resident_kib
from bench.stage_world import POLICY, WORD, StageWorld
from tests.support.model_client import fields_of

STREAMS = 50
REWRITES = 100
_HALTED_SECONDS = 0.5
"""A gateway looks every quarter of a second."""
_MOST_GROWN_KIB = 24 * 1024
_MOST_HELD_KIB = STREAMS * 2 * 1024
"""Of all slow readers together: of each what the filter holds, and three times what is searched at once, which is 384
KiB: under search, waiting for that, and not taken by the client."""
_REQUESTS = 10_000
_HOUR = 3600.0
_WARM = 2_000
_ENFORCED = re.compile(r"enforced=(\d+)")
_ANSWERS = f"  - {{id: no-answer, side: response, effect: block, pattern: {WORD}}}\n"


class Stream(threading.Thread):
    """One reader of a stream, to its end."""

    def __init__(self, world: StageWorld, port: int) -> None:
        super().__init__(daemon=True)
        self._world, self._client = world, world.client(port)
        self.status = 0
        self.tail = b""
        self.ended = 0.0
        """Monotonic; 0: it runs."""
        self.begun = threading.Event()

    def run(self) -> None:
        with self._client as client:
            try:
                answer = client.begin("fast")
                self.status = answer.status
                self._world.note(answer.status, fields_of(answer))
                self.begun.set()
                while read := answer.read1(65536):
                    self.tail = (self.tail + read)[-4096:]
            except (OSError, http.client.HTTPException) as error:
                self.tail += f"broken: {type(error).__name__}".encode()
            self.ended = time.monotonic()
            self.begun.set()


@contextmanager
def streaming(world: StageWorld, number: int = STREAMS) -> Iterator[list[Stream]]:
    """So many that run, at all gateways; their provider ends them with the block."""
    ports = [gateway.ports["data"] for gateway in world.gateways]
    streams = [Stream(world, ports[at % len(ports)]) for at in range(number)]
    for stream in streams:
        stream.start()
    try:
        for stream in streams:
            stream.begun.wait(30)
        yield streams
    finally:
        world.upstream.streams_end.set()
        for stream in streams:
            stream.join(30)


def rewritten(world: ChainWorld, options: Options, number: int = REWRITES) -> Seen:
    """An operator enforces policies, sets prices and budgets while streams and requests run."""
    at, seen = stages(world), Seen(0.0)
    with at.under_load():
        at.until(lambda: len(at.told) > 100, "nobody is answered")
        before = resident_kib(at.gateway.pid)
        began, versions = time.monotonic(), {1}
        with streaming(at) as streams:
            for at_number in range(number):
                if at_number % 3 == 0:
                    more = "".join(
                        f"  - {{id: r{each}, effect: flag, pattern: 'w{at_number}x{each}'}}\n" for each in range(50)
                    )
                    versions.add(at.enforce(POLICY + more))
                elif at_number % 3 == 1:
                    at.price(str(at_number))
                else:
                    at.run("budget", "update", "all", "--requests", str(10**9 + at_number))
            running = sum(not stream.ended for stream in streams)
        told(at, seen, began)
        seen.mended = time.monotonic()
        at.recovered(seen.mended)
        time.sleep(1.0)
        after = resident_kib(at.gateway.pid)
        seen.wrong += at.complaints()
    if after - before > _MOST_GROWN_KIB:
        seen.wrong.append(f"{(after - before) / 1024:.1f} MiB are held afterwards")
    _one_version_each(at, seen, versions)
    ends = Counter((stream.status, stream.tail.endswith(b"data: [DONE]\n\n")) for stream in streams)
    if running != len(streams) or ends != {(200, True): len(streams)}:
        seen.wrong.append(f"{running} streams of {len(streams)} ran on, and they ended so: {ends}")
    seen.operators.append(
        f"{number} rewrites in {seen.mended - began:.1f} s, {len(versions)} versions; {len(at.told)} requests"
    )
    seen.operators.append(f"RSS {before / 1024:.1f} MiB before, {after / 1024:.1f} MiB a second after")
    return seen


def _one_version_each(at: StageWorld, seen: Seen, versions: set[int]) -> None:
    """The header of each answer names one version, and so does its receipt."""
    written = {each["request_id"]: each["policy_version"] for each in at.lines_of("receipt", "export")}
    wrong: Counter[str] = Counter()
    for each in at.told:
        found = set(map(int, _ENFORCED.findall(each.policy)))
        blocked = each.status == 403
        if (found or not blocked) and (len(found) != 1 or not found <= versions):
            wrong[f"a request met the versions {found} ({each.policy})"] += 1
        elif found and written.get(each.request_id) not in found:
            wrong[f"a request met {found}, its receipt says {written.get(each.request_id)}"] += 1
    seen.wrong += [f"{text} (×{count})" for text, count in wrong.most_common(5)]


def halted(world: ChainWorld, options: Options, number: int = STREAMS) -> Seen:
    """The account, with streams at two gateways and requests under way."""
    at, seen = stages(world), Seen(0.0)
    with at.under_load(), streaming(at, number) as streams:
        at.run("account", "halt", "default")
        since = time.monotonic()
        at.until(lambda: all(stream.ended for stream in streams), "not every stream ended")
        slowest = max(stream.ended for stream in streams) - since
        time.sleep(max(0.0, since + _HALTED_SECONDS - time.monotonic()))
        answered = sum(at.upstream.answered.values())
        time.sleep(1.0)
        late = sum(at.upstream.answered.values()) - answered
        after = at.seen(since + _HALTED_SECONDS)
        at.run("account", "resume", "default")
        seen.mended = time.monotonic()
        at.recovered(seen.mended)
        seen.wrong += at.complaints()
    told_so = sum(b"account_halted" in stream.tail for stream in streams)
    seen.sandboxes += [f"{told_so} of {number} streams ended with account_halted, the last {slowest:.2f} s after"]
    seen.sandboxes.append(f"{_HALTED_SECONDS:g} s later: {dict(after)}")
    if told_so != number or slowest > _HALTED_SECONDS or late or after.keys() - {"403 account_halted"}:
        seen.wrong.append(f"{told_so} streams, {slowest:.2f} s, {late} answers afterwards, {dict(after)}")
    return seen


def revoked(world: ChainWorld, options: Options) -> Seen:
    """The key, during streams: they go on to their end, and nothing new begins."""
    at, seen = stages(world), Seen(0.0)
    at.prepare()
    with streaming(at, 10) as streams:
        at.run("key", "revoke", "ada")
        began = time.monotonic()
        with at.client(at.gateway.ports["data"]) as client:
            at.until(lambda: client.ask("fast").status == 401, "the key is not refused")
        seen.operators.append(f"the key was refused {time.monotonic() - began:.2f} s later")
        time.sleep(1.0)
        running = sum(not stream.ended for stream in streams)
    seen.mended = time.monotonic()
    done = sum(stream.tail.endswith(b"data: [DONE]\n\n") for stream in streams)
    seen.sandboxes.append(f"{running} of {len(streams)} streams ran on, {done} to their end")
    if running != len(streams) or done != len(streams):
        seen.wrong.append(seen.sandboxes[-1])
    return seen


def clock_back(world: ChainWorld, options: Options) -> Seen:
    """Over the start of a budget's hour and home: each hour has its room once."""
    at, seen, room = stages(world), Seen(0.0), 5
    clock, environ = fake_clock(world.directory)
    late = _HOUR - 60 - time.time() % _HOUR
    clock.write_text(f"{late - _HOUR:+.1f}\n")
    at.gateway.start(environ)
    at.prepare()
    at.run("budget", "create", "hourly", "--account-wide", "--requests", str(room), "--window", "hour")
    with at.client(at.gateway.ports["data"]) as client:
        at.until(lambda: client.ask("fast").status == 429, "the budget is not in force")
    served = []
    for jump in (late, late + 90, late, late + 90):
        clock.write_text(f"{jump:+.1f}\n")
        with at.client(at.gateway.ports["data"]) as client:
            ends = Counter(client.ask("fast").status for _ in range(2 * room))
        served.append(ends[200])
        if ends.keys() - {200, 429}:
            seen.wrong.append(f"requests ended so: {dict(ends)}")
    seen.mended = time.monotonic()
    seen.sandboxes.append(f"served before, behind, before and behind the start of an hour: {served}")
    seen.wrong += [] if served == [room, room, 0, 0] else [seen.sandboxes[-1]]
    return seen


def memory(world: ChainWorld, options: Options, number: int = _REQUESTS) -> Seen:
    """What all stages have grown by after so many requests."""
    at, seen = stages(world), Seen(0.0)
    at.pause_seconds = 0.0
    with at.under_load():
        at.until(lambda: len(at.calls) > _WARM, "too slow", 120)
        before = resident_kib(at.gateway.pid)
        at.until(lambda: len(at.calls) > _WARM + number, "too slow", 300)
        at.stop()
        time.sleep(1.0)
        after = resident_kib(at.gateway.pid)
    seen.mended = time.monotonic()
    seen.operators.append(f"RSS {before / 1024:.1f} MiB after {_WARM} requests, {after / 1024:.1f} after {number} more")
    seen.wrong += [seen.operators[-1]] if after - before > _MOST_GROWN_KIB else []
    return seen


def slow_readers(world: ChainWorld, options: Options) -> Seen:
    """Of streams that a rule about answers may block: what is held of them is bounded, though nobody reads."""
    at, seen = stages(world), Seen(0.0)
    at.prepare()
    version = at.enforce(POLICY + _ANSWERS)
    time.sleep(1.0)
    at.upstream.word = "word " * 6000
    before = most = resident_kib(at.gateway.pid)
    with ExitStack() as stack:
        for _ in range(STREAMS):
            stack.enter_context(_silent_reader(at))
        until = time.monotonic() + 8.0
        while time.monotonic() < until:
            most = max(most, resident_kib(at.gateway.pid))
            time.sleep(0.1)
    at.upstream.streams_end.set()
    seen.mended = time.monotonic()
    seen.operators.append(
        f"policy {version}; {STREAMS} silent readers: RSS {before / 1024:.1f} MiB, at most {most / 1024:.1f} MiB"
    )
    seen.wrong += [seen.operators[-1]] if most - before > _MOST_HELD_KIB else []
    return seen


@contextmanager
def _silent_reader(at: StageWorld) -> Iterator[None]:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", at.gateway.ports["data"]))
        body = b'{"model": "fast", "stream": true, "messages": []}'
        fields = f"Host: a\r\nAuthorization: Bearer {at.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + fields.encode() + body)
        yield


_cell = partial(ChainCell, limit=0, make=StageWorld)
STAGE_LOAD_CELLS = (
    _cell("stages: 100 rewrites of policies, prices and budgets under 50 streams", "sqlite", rewritten, seconds=150),
    _cell("stages: account halted with 50 streams at two gateways", "sqlite", halted, gateways=2),
    _cell("stages: account halted with 50 streams, PostgreSQL", "postgresql", halted, gateways=2),
    _cell("stages: key revoked during streams", "sqlite", revoked),
    _cell("stages: clock set back over the start of a budget's hour", "sqlite", clock_back, seconds=150),
    _cell("stages: memory over 10,000 requests", "sqlite", memory, seconds=400),
    _cell("stages: 50 readers that do not read, under a rule about answers", "sqlite", slow_readers),
)
