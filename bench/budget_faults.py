"""Budgets' faults (`make budget-faults`): whatever breaks, ledger and usage rows are what the providers wrote down.

    .venv/bin/python bench/budget_faults.py [--each 8] [--database sqlite] [--cell WORDS ...] [--list]

Two gateways, real processes on one data directory or on PostgreSQL, with hard budgets in requests, tokens and money
for the account, each key and each route, which no load uses up. Clients of four dialects, with streams and without,
leave at every moment; providers answer 429 and 500, reset connections, cut answers and tell no usage; at the end a
gateway is ended, then one is killed. Of each cell: what the providers count, what `pointsman budget status` and
`pointsman usage` tell, and the difference. Exit status 1 when anything does not agree.
"""

import argparse
import asyncio
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.budget_world import MOST_OUTPUT, BudgetWorld, Counts, Request, Rows, budget_world
from bench.spending_upstream import CHAT, COMPLETIONS, DIALECTS, ENDING, PRICES, RESPONSES, Books, Spent
from tests.support.databases import postgres_server

_AT_ONCE = 24
_SETTLING_SECONDS = 15.0
_WRITTEN_SECONDS = 1.0
"""After their end requests have rows, and what they came to is counted."""
_LOST = re.compile(r": (\d+) that had ended and (\d+) that were under way have none")


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to break it, on a route of its own."""

    route: str
    done: str
    first: Sequence[str] = ("answer",)
    second: Sequence[str] = ("500",)
    leaves: str = ""
    streams: Sequence[bool] = (False, True)
    status: int = 200
    """Which every client must get; 0: whatever it was, it left or was cut."""
    pause: float = 0.0
    """Afterwards: until a provider that was left out is asked again."""
    reaches: bool = True
    """Whether there is a row of it: half a request leaves none."""
    dialects: Sequence[str] = DIALECTS

    def requests(self, each: int) -> Iterable[Request]:
        """So many of each dialect, with and without a stream."""
        kinds = product(range(each), self.dialects, self.streams)
        for number, (_, dialect, stream) in enumerate(kinds):
            yield Request(self.route, number, dialect, stream, self.first, self.second, self.leaves)


CELLS = (
    Cell("plain", "answers"),
    Cell("retried", "500, then an answer to the retry", ("500", "answer")),
    Cell("twice", "500 twice, the next provider answers", ("500",), ("answer",)),
    Cell("limited", "429, the next provider answers", ("429",), ("answer",), pause=1.1),
    Cell("locked", "401, the next provider answers", ("401",), ("answer",)),
    Cell("reset", "reset before the answer, the next one answers", ("reset",), ("answer",)),
    Cell("early", "an error as the first event, the next one answers", ("error-event",), ("answer",), streams=(True,)),
    Cell("nobody", "500 from all", ("500",), ("500",), status=503),
    Cell("rejected", "422: the request is at fault", ("422",), status=422),
    Cell("bare", "no usage in the answer", ("bare",)),
    Cell("half", "clients leave in the middle of their request", leaves="half", status=0, reaches=False),
    Cell("silent", "clients leave while a provider has it", ("silent",), leaves="sent", status=0),
    Cell("second", "the same at the second provider", ("500",), ("silent",), leaves="sent", status=0),
    Cell("middle", "clients leave in the middle of the answer", ("lingers",), leaves="body", status=0),
    Cell("ended", "clients leave at the last event", ("open-end",), leaves="end", streams=(True,), status=0),
    Cell("cut", "providers cut in the middle of the answer", ("cut",), status=0),
    Cell(
        "told", "providers cut between usage and the last event", ("told-cut",), streams=(True,), dialects=tuple(ENDING)
    ),
)
_OPENAI = (CHAT, COMPLETIONS, RESPONSES)
DIRECT_CELLS = (
    Cell("direct", "direct: answers", dialects=_OPENAI),
    Cell("direct-500", "direct: 500, which is the answer", ("500-said",), status=500, dialects=_OPENAI),
    Cell("direct-reset", "direct: reset before the answer", ("reset",), status=502, dialects=_OPENAI),
    Cell(
        "direct-silent",
        "direct: clients leave while a provider has it",
        ("silent",),
        leaves="sent",
        status=0,
        dialects=_OPENAI,
    ),
    Cell(
        "direct-middle",
        "direct: clients leave in the middle of the answer",
        ("lingers",),
        leaves="body",
        status=0,
        dialects=_OPENAI,
    ),
    Cell("direct-cut", "direct: providers cut in the middle of the answer", ("cut",), status=0, dialects=_OPENAI),
)
ENDED = "ended-gateway"
KILLED = "killed-gateway"
ENDS = ((ENDED, signal.SIGTERM), (KILLED, signal.SIGKILL))
CHAINS = (*(cell.route for cell in CELLS), ENDED, KILLED)
DIRECT = tuple(cell.route for cell in DIRECT_CELLS)


@dataclass(slots=True)
class Line:
    """Of the table."""

    done: str
    asked: int = 0
    calls: int = 0
    upstream: Counts = Counts()  # noqa: RUF009  # frozen
    untold: int = 0
    ledger: Counts = Counts()  # noqa: RUF009  # frozen
    rows: Rows = Rows()  # noqa: RUF009  # frozen
    notes: str = ""
    wrong: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Requests / tokens / money."""
        reckoned = f" + {self.untold} reckoned" if self.untold else ""
        rows = f"{self.rows.counts} ({self.rows.failed} failed, {self.rows.estimated} estimated)"
        difference = "; ".join(self.wrong) or self.notes or "none"
        cells = (self.done, self.asked, self.calls, f"{self.upstream}{reckoned}", self.ledger, rows, difference)
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD = "| done | asked | calls | providers: requests / tokens / money | ledger | rows | difference |\n|" + "---|" * 7


def reckoned(untold: Sequence[Spent]) -> tuple[Counts, Counts]:
    """The least and the most that answers may come to whose tokens nobody told."""
    least = most = Counts()
    for each in untold:
        fresh, kept, out, request = PRICES[each.provider]
        # A model's name has another length upstream, and so has the body.
        prompt, answer = -(-each.received // 4) + 2, -(-each.sent // 4) + 1
        least += Counts(1, 1, request + min(fresh, kept))
        most += Counts(1, prompt + max(answer, 1), request + prompt * max(fresh, kept) + answer * out)
    return least, most


def _beyond(ledger: Counts, low: Counts, high: Counts) -> list[str]:
    """Units in which the ledger is not between."""
    return [
        f"ledger: {getattr(ledger, unit)} {unit}, not {getattr(low, unit)}..{getattr(high, unit)}"
        for unit in ("requests", "tokens", "money")
        if not getattr(low, unit) <= getattr(ledger, unit) <= getattr(high, unit)
    ]


def compared(line: Line, books: Books) -> list[str]:
    """What does not agree, each request ended and written."""
    untold = books.untold
    told = Counts(len(books.spent) - len(untold), books.tokens, books.money)
    least, most = reckoned(untold)
    ledger, rows = line.ledger, line.rows
    wrong = _beyond(ledger, told + least, told + most)
    if (rows.counts.tokens, rows.counts.money) != (ledger.tokens, ledger.money):
        wrong.append(f"rows have {rows.counts}, the ledger {ledger}")
    if rows.estimated != len(untold):
        wrong.append(f"{rows.estimated} rows are estimated, not {len(untold)}")
    return wrong


async def _looked(world: BudgetWorld, line: Line, route: str) -> None:
    books = world.upstream.books[route]
    line.calls, line.untold = books.calls, len(books.untold)
    line.upstream = Counts(len(books.spent), books.tokens, books.money)
    line.ledger = (await world.ledger("route")).get(route, Counts())
    line.rows = (await world.rows()).get(route, Rows())


async def _settled(world: BudgetWorld, line: Line, route: str, complaints: Callable[[], list[str]]) -> None:
    """Once all agrees, or after a while: clients that left have to be noticed, and rows be written."""
    until = time.monotonic() + _SETTLING_SECONDS
    while True:
        await _looked(world, line, route)
        wrong = complaints()
        if not wrong or time.monotonic() > until:
            line.wrong += wrong
            return
        await asyncio.sleep(0.2)


async def run_cell(world: BudgetWorld, cell: Cell, each: int) -> Line:
    """At both gateways in turn."""
    requests, bound = list(cell.requests(each)), asyncio.Semaphore(_AT_ONCE)
    line = Line(cell.done, len(requests))

    async def one(request: Request) -> int:
        async with bound:
            return await world.ask(request, request.number // 2 % 2)

    ends = Counter(await asyncio.gather(*map(one, requests)))

    def complaints() -> list[str]:
        wrong = compared(line, world.upstream.books[cell.route])
        if cell.status and ends != {cell.status: len(requests)}:
            wrong.append(f"clients got {dict(ends)}")
        if line.rows.counts.requests != len(requests) * cell.reaches:
            wrong.append(f"{line.rows.counts.requests} rows of {len(requests)} requests")
        return wrong

    await _settled(world, line, cell.route, complaints)
    await asyncio.sleep(cell.pause)
    return line


def _crowd(route: str, each: int) -> list[Request]:
    """Answers of all kinds, with some among them that never come."""
    cell = Cell(route, "")
    requests = list(cell.requests(4 * each))
    return [
        Request(route, at, CHAT, stream=False, first=("silent",)) if at % 8 == 5 and route == KILLED else request
        for at, request in enumerate(requests)
    ]


async def run_end(world: BudgetWorld, route: str, how: signal.Signals, each: int) -> Line:
    """The first gateway ends in the middle of a crowd, and starts again; some were answered long before."""
    victim, requests = world.gateways[0], _crowd(route, each)
    line = Line(f"a gateway is ended by {how.name} under load", len(requests))
    answered: set[int] = set()
    many = asyncio.Event()

    async def one(request: Request) -> None:
        if await world.ask(request, 0) == 200:
            answered.add(request.number)
        if len(answered) > len(requests) // 2:
            many.set()

    calm = [request for request in requests[: len(requests) // 3] if request.first == ("answer",)]
    await asyncio.gather(*map(one, calm))
    await _written(world, route, len(calm))
    early = set(answered)
    asking = [asyncio.get_running_loop().create_task(one(each)) for each in requests if each not in calm]
    await many.wait()
    await asyncio.to_thread(victim.end, how)
    await asyncio.gather(*asking)
    said = len(victim.lines)
    await asyncio.to_thread(victim.start)
    over = sum((_worst(len(each.body())) for each in requests if each.number not in early), Counts())

    def complaints() -> list[str]:
        books = world.upstream.books[route]
        if how is not signal.SIGKILL:
            return compared(line, books)
        return _killed(line, books, over, len(early), len(answered))

    if how is signal.SIGKILL:
        line.notes = f"{len(requests) - len(early)} were under way or of the last second; said: "
    line.notes += "; ".join(each.strip() for each in victim.lines[said:] if "usage:" in each)
    await _settled(world, line, route, complaints)
    return line


async def _written(world: BudgetWorld, route: str, number: int) -> None:
    """Until so many requests have rows, which takes a second, or as long as a busy disk has other things to do."""
    until = time.monotonic() + _SETTLING_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(0.1)
        if (await world.rows()).get(route, Rows()).counts.requests >= number:
            break
    await asyncio.sleep(_WRITTEN_SECONDS)  # for what they came to


def _worst(length: int) -> Counts:
    """What is reserved for a request with so many bytes."""
    prompt = -(-length // 3)
    money = max(prompt * fresh + MOST_OUTPUT * out + request for fresh, _, out, request in PRICES.values())
    return Counts(1, prompt + MOST_OUTPUT, money)


def _killed(line: Line, books: Books, over: Counts, early: int, answered: int) -> list[str]:
    """What is worse than it may be: too little counted, too much, or rows missing of before the last second."""
    least, most = reckoned(books.untold)
    low = Counts(len(books.spent) - len(books.untold), books.tokens, books.money) + least
    wrong = _beyond(line.ledger, low, low + most + over)
    rows = line.rows.counts.requests
    if not early <= rows <= answered:
        wrong.append(f"{rows} rows, not {early}..{answered}")
    found = _LOST.search(line.notes)
    told = 0 if found is None else int(found[1]) + int(found[2])
    if rows + told < answered:
        wrong.append(f"{rows} rows and {told} that are told as lost, of {answered} that were answered")
    return wrong


async def _totals(world: BudgetWorld) -> Line:
    """The account's budgets, and the key's, are the sums of all routes'."""
    line = Line("all of it")
    for books in world.upstream.books.values():
        line.calls += books.calls
        line.untold += len(books.untold)
        line.upstream += Counts(len(books.spent), books.tokens, books.money)
    by_route = await world.ledger("route")
    line.ledger = sum(by_route.values(), Counts())
    line.rows = Rows(sum((each.counts for each in (await world.rows()).values()), Counts()))
    for scope, subject in (("account", ""), ("key", "ada")):
        if (found := (await world.ledger(scope))[subject]) != line.ledger:
            line.wrong.append(f"the budgets of the {scope} have {found}, all routes {line.ledger}")
    for route, counts in by_route.items():
        told = sum(f"budget soft: used up for route {route}: " in each for each in world.lines)
        if told != bool(counts.tokens > 1) and route != KILLED:
            line.wrong.append(f"the soft budget of {route} was told of {told} times")
    line.wrong += [each for each in world.lines if "internal error" in each or "Traceback" in each]
    return line


async def broken(
    world: BudgetWorld, cells: Sequence[Cell], each: int, ends: Sequence[tuple[str, signal.Signals]] = ENDS
) -> list[Line]:
    """All of it, a line each."""
    await world.limit_everything()
    lines = []
    for cell in cells:
        lines.append(await run_cell(world, cell, each))
        print(lines[-1].text(), flush=True)
    for route, how in ends:
        lines.append(await run_end(world, route, how, each))
        print(lines[-1].text(), flush=True)
    lines.append(await _totals(world))
    print(lines[-1].text(), flush=True)
    return lines


async def campaign(directory: Path, cells: Sequence[Cell], each: int, url: str) -> list[Line]:
    """In a world of its own."""
    async with budget_world(directory, CHAINS, url, direct=DIRECT) as world:
        return await broken(world, cells, each)


def main(arguments: list[str]) -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=8, help="requests of each dialect, with a stream and without")
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append", help="may be repeated")
    parser.add_argument("--cell", action="append", default=[], metavar="WORDS", help="only cells with these words")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(arguments)
    cells = [
        cell for cell in (*CELLS, *DIRECT_CELLS) if not chosen.cell or any(words in cell.done for words in chosen.cell)
    ]
    if chosen.list:
        print("\n".join(cell.done for cell in cells))
        return 0
    wrong, began = 0, time.monotonic()
    with ExitStack() as stack:
        for database in chosen.database or ["sqlite", "postgresql"]:
            server = stack.enter_context(postgres_server()) if database == "postgresql" else None
            directory = Path(tempfile.mkdtemp(prefix="pointsman-budgets-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            print(f"two gateways on {database}\n{HEAD}")
            url = server.url(server.new_database()) if server is not None else ""
            lines = asyncio.run(campaign(directory, cells, chosen.each, url))
            wrong += sum(bool(line.wrong) for line in lines)
    print(f"{wrong} lines wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
