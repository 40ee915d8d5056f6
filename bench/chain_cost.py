"""What each part of a request through the data listener costs, in CPU time of one thread: taken away one by one.

    .venv/bin/python bench/chain_cost.py            # half a minute
    .venv/bin/python bench/chain_cost.py --profile quota-1  # where a limited chain's time goes, by function

No sockets: a dispatcher between a client that swallows what it is sent and an upstream that has answered already. So
caches are warm: Python's part is about what `bench/chains.py` sees, a commit of SQLite's a quarter of it.
"""

import argparse
import asyncio
import contextlib
import cProfile
import itertools
import math
import pstats
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pointsman.core.attempts import Chain, Member
from pointsman.core.caller import KEY, Caller
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.model_table import Entry, ModelAccess, ModelTable, Target
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.quota import Quota
from pointsman.core.reach import Network
from pointsman.core.token_digest import digest_of
from pointsman.events.operation_log import OperationLog
from pointsman.events.operations_record import OperationJournal
from pointsman.gateway.metrics import Metrics
from pointsman.gateway.stages.usage import UsageRows
from pointsman.proxy.call import Backend, Call, Response
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.ledger import QuotaLedger
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.proxy.model_reception import Models
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.store.interface import Store
from pointsman.store.quota_sqlite import open_sqlite_ledger
from pointsman.wire.request import Request, RequestReader
from pointsman.wire.response import ResponseHead

_KEY = "pm-bench"
_ANSWER = b'{"id":"c-1","choices":[{"index":0,"message":{"role":"assistant","content":"%b"}}],"usage":{"prompt_tokens":12,"completion_tokens":34}}' % (b"x" * 200)  # fmt: skip  # noqa: E501
_FIELDS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_ANSWER))]
_ROUND = 200
"""Requests, of which the flush of what they have left behind is a part."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What takes part."""

    route: str
    ledger: str = "sqlite"
    log: bool = True
    journal: bool = True
    metrics: bool = True
    usage: bool = True
    networks: tuple[Network, ...] = ()
    """Of the key, which has an end too where it has any."""


class _Nowhere:
    def write(self, text: str, /) -> None: ...
    def flush(self) -> None: ...


class _Client:
    keep_alive = True

    def write(self, data: bytes) -> None: ...
    def attach(self, flow: object) -> None: ...


class _Answered:
    def __init__(self) -> None:
        self.head = ResponseHead(200, b"OK", _FIELDS)

    async def relay(self, sink: Any) -> str:
        sink.body(_ANSWER, last=True)
        return ""

    def close(self) -> None: ...


class _Upstream:
    async def open(self, call: Call) -> Response:
        return cast(Response, _Answered())


def targets() -> dict[str, Target]:
    """A direct route, and chains of one and three."""
    speaks = (InferenceProtocol.CHAT_COMPLETIONS,)
    endpoint = parse_endpoint("http://127.0.0.1:9/v1")
    members = [
        Member(f"p{at}", Candidate(f"p{at}", endpoint, "m", speaks, provider=f"p{at}"), Quota(10**9, 10**9))
        for at in range(3)
    ]
    chains = [
        Chain("default", "open-1", (replace(members[0], provider="open", quota=Quota()),), "in_order"),
        Chain("default", "quota-1", tuple(members[:1]), "in_order"),
        Chain("default", "quota-3", tuple(members), "in_order"),
        Chain("default", "weighted-3", tuple(members), "weighted"),
    ]
    return {"direct": replace(members[0].candidate, route="direct"), **{chain.name: chain for chain in chains}}


class _Uncounted(MemoryLedger):
    """Gives a place without a look."""

    async def reserve(self, key: Any, quota: Quota, now: float) -> Any:
        return self


@contextlib.asynccontextmanager
async def dispatcher_of(parts: Parts, directory: Path) -> AsyncIterator[tuple[Dispatcher, Any]]:
    """With these parts; and what writes what requests have left behind."""
    table = ModelTable(targets())
    ends = time.time() + 86_400 if parts.networks else math.inf
    keys = {digest_of(_KEY): Entry(Caller("default", "bench", KEY), table, ends, networks=parts.networks)}
    models = Models(lambda: access, time.time, is_open=False, mark=b"0123456789abcdef")
    access = ModelAccess({"default": table}, keys)
    nowhere = _Nowhere()
    log = OperationLog(lines=nowhere if parts.log else None, wall_clock=time.time)
    numbers = itertools.count()
    backends: Mapping[str, Backend] = {"http": _Upstream()}
    dispatcher = Dispatcher(
        models, backends, log, DEFAULT_LIMITS, clock=time.monotonic, request_ids=lambda: f"abcdef-{next(numbers):x}"
    )
    watchers = [Metrics("1", process=False)] if parts.metrics else []
    journal = OperationJournal(nowhere, watchers, wall_clock=time.time, clock=time.monotonic)
    made: dict[str, QuotaLedger] = {"none": _Uncounted(), "memory": MemoryLedger()}
    sqlite = await open_sqlite_ledger(directory / f"{time.monotonic_ns()}.db", time.time())
    made["sqlite"] = sqlite
    dispatcher.serve_chains(made[parts.ledger], Random(1), journal if parts.journal else None)
    usage = UsageRows(cast(Store, None), lambda _: None, time.time, keep_days=1, most_waiting=10**9)
    dispatcher.pass_stages(Stages(usage_record=usage.record) if parts.usage else NO_STAGES)

    def flush() -> None:
        log.flush()
        journal.flush()
        usage.form()
        usage._rows.clear()

    try:
        yield dispatcher, flush
    finally:
        await sqlite.close()


def request_to(route: str) -> Request:
    """As an SDK sends it."""
    body = b'{"model": "%b", "messages": [{"role": "user", "content": "%b"}]}' % (route.encode(), b"y" * 400)
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %b\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (_KEY.encode(), len(body), body)
    )
    while not isinstance(event := reader.next_event(), Request):
        pass
    return event


class Loop:
    """One set of parts, driven again and again."""

    def __init__(self, dispatcher: Dispatcher, flush: Any, route: str) -> None:
        self._dispatcher, self._flush = dispatcher, flush
        self._request = request_to(route)
        self.best = float("inf")

    async def round(self) -> None:
        """Some requests, and the writing of what they left behind."""
        client, request, dispatcher = cast(ClientConnection, _Client()), self._request, self._dispatcher
        began = time.thread_time()
        for _ in range(_ROUND):
            await dispatcher.serve(dispatcher.admit(request.head), request, client)
            await asyncio.sleep(0)  # each in a turn of its own, as alone as can be
        self._flush()
        self.best = min(self.best, (time.thread_time() - began) / _ROUND * 1e6)


async def measured(cells: dict[str, Parts], rounds: int) -> dict[str, float]:
    """Microseconds per request, the best of many interleaved rounds."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        loops = {}
        for name, parts in cells.items():
            made = await stack.enter_async_context(dispatcher_of(parts, directory))
            loops[name] = Loop(*made, parts.route)
        for _ in range(rounds):
            for loop in loops.values():
                await loop.round()
        return {name: loop.best for name, loop in loops.items()}


def cells_of(route: str) -> dict[str, Parts]:
    """All parts, and all but one."""
    whole = Parts(route)
    taken = {
        "log": replace(whole, log=False),
        "metrics": replace(whole, metrics=False),
        "journal, metrics": replace(whole, journal=False),
        "usage": replace(whole, usage=False),
    }
    if route != "direct":
        taken["ledger on disk"] = replace(whole, ledger="memory")
        taken["ledger"] = replace(whole, ledger="none")
    taken["all of these"] = Parts(route, "none", log=False, journal=False, metrics=False, usage=False)
    return {route: whole, **{f"{route} without {name}": parts for name, parts in taken.items()}}


async def profile(route: str) -> None:
    """By function."""
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as directory:
        async with dispatcher_of(Parts(route), Path(directory)) as made:
            loop, profiler = Loop(*made, route), cProfile.Profile()
            await loop.round()
            profiler.enable()
            for _ in range(50):
                await loop.round()
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main(arguments: list[str]) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--profile", metavar="ROUTE", choices=list(targets()))
    options = parser.parse_args(arguments)
    if options.profile:
        asyncio.run(profile(options.profile))
        return 0
    cells = {**cells_of("direct"), **cells_of("quota-1"), "open-1": Parts("open-1")}
    cells |= {route: Parts(route) for route in ("quota-3", "weighted-3")}
    found = asyncio.run(measured(cells, options.rounds))
    for name, parts in cells.items():
        part = f"{found[parts.route] - found[name]:8.1f}" if name != parts.route else ""
        print(f"{name:34}{found[name]:8.1f}{part}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
