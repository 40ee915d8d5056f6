"""The gateway's faults (`make gateway-faults`): one thing is broken at a time, under load, and nothing may be lost.

    .venv/bin/python bench/gateway_faults.py [--seed N] [--kills 50] [--cell WORDS ...] [--list]

Real processes: gateways on SQLite and on PostgreSQL, `pointsman sandbox proxy`s that follow them, operators who keep
changing providers and routes by the command line's own calls, and clients that keep sending requests. After each cell
every acknowledged change must be there, route versions must be unique and have grown, no request may have met half of
a record, and every sandbox must serve what is stored. Cells about chains have a world of their own: callers of a data
listener, and providers that count. There no limit may be overrun, and no caller refused whom another provider could
answer. Exit status 1 when anything was lost, wrong or too late.
"""

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_world import ChainWorld
from bench.fault_table import Row, bounded
from bench.gateway_cells import Cell, ChainCell, NotHere, Options, start_again
from bench.gateway_chain_cells import CHAIN_CELLS
from bench.gateway_database_cells import DATABASE_CELLS, POSTGRESQL_CELLS, data_directory
from bench.gateway_process_cells import PROCESS_CELLS
from bench.gateway_quota_cells import QUOTA_CELLS
from bench.gateway_stage_cells import STAGE_CELLS
from bench.gateway_stage_load_cells import STAGE_LOAD_CELLS
from bench.gateway_world import Mark, World
from tests.support.databases import PostgresServer, postgres_server

_MOST_TEXTS = 3


def run_cell(cell: Cell, world: World, options: Options) -> Row:
    """Break it, mend it, look."""
    row, mark, began = Row(cell.name), world.mark(), time.monotonic()
    allowed: tuple[str, ...] = ()
    try:
        with bounded(cell.seconds):
            seen = cell.act(world, options)
            row.operators += seen.operators
            row.clients += seen.sandboxes
            row.wrong += seen.wrong
            allowed = seen.allowed
            row.recovered = world.recovered(seen.mended)
            row.wrong += world.complaints()
    except NotHere as error:
        row.skipped = str(error)
    except Exception as error:  # whatever it was, the other cells are run
        row.wrong.append(f"{type(error).__name__}: {error}")
        world.heal()
    row.took = time.monotonic() - began
    _fill(row, world, mark, allowed)
    return row


def run_chain_cell(cell: ChainCell, options: Options, server: PostgresServer | None = None) -> Row:
    """Break it, mend it, look, in a world of its own."""
    row, began = Row(cell.name), time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="pointsman-faults-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        data_directory(directory / "data", stack)
        world = cell.make(directory, stack, limit=cell.limit, alone=cell.alone, gateways=cell.gateways, server=server)
        try:
            with bounded(cell.seconds):
                seen = cell.act(world, options)
            row.recovered = world.recovered_at - seen.mended if world.recovered_at else 0.0
            row.operators += [_shortened(text, world) for text in seen.operators]
            row.clients += [_shortened(text, world) for text in seen.sandboxes]
            row.wrong += seen.wrong
        except NotHere as error:
            row.skipped = str(error)
        except Exception as error:  # whatever it was, the other cells are run
            row.wrong.append(f"{type(error).__name__}: {error}")
            row.operators += [_shortened(text, world) for text in world.said()[-5:]]
        row.wrong += [line for line in world.said() if "internal error" in line or "Traceback" in line]
    row.took = time.monotonic() - began
    return row


def _fill(row: Row, world: World, mark: Mark, allowed: Sequence[str]) -> None:
    told = Counter(
        f"{each.code}: {_shortened(each.text, world)}" for each in world.ledger[mark.attempts :] if each.code != "OK"
    )
    row.operators += [f"{text} (×{count})" for text, count in told.most_common(_MOST_TEXTS)]
    failures = Counter(_shortened(text, world) for text in world.request_failures(mark))
    for text, count in failures.most_common():
        if text.startswith(tuple(allowed)):
            row.clients.append(f"{text} (×{count})")
        else:
            row.wrong.append(f"a request failed (×{count}): {text}")
    row.clients.append(f"{world.requests_served(mark)} requests served")
    news = Counter(_kind(_shortened(line, world)) for line in world.news(mark))
    row.clients += [f"{text} (×{count})" for text, count in news.most_common(_MOST_TEXTS)]


def _shortened(text: str, world: World | ChainWorld) -> str:
    text = text.replace(str(world.directory), "DIR").strip()
    return re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)


def _kind(line: str) -> str:
    kind = line.split()[1]
    reason = re.search(r" reason=(\S+)", line)
    if reason is None:
        return kind
    detail = line.partition(" detail=")[2] if reason[1] == "gateway_error" else ""
    return f"{kind} {reason[1]} {detail}".strip()


@contextmanager
def _world(kind: str, directory: Path) -> Iterator[World]:
    with ExitStack() as stack:
        if kind == "sqlite":
            data_directory(directory / "gateway-0", stack)
            yield World(directory, stack)
        else:
            yield World(directory, stack, gateways=2, server=stack.enter_context(postgres_server()))


def run(cells: Sequence[Cell], options: Options) -> list[Row]:
    """All of them, and print."""
    rows = []
    for kind in ("sqlite", "postgresql"):
        mine = [cell for cell in cells if cell.world == kind]
        if not mine:
            continue
        directory = Path(tempfile.mkdtemp(prefix="pointsman-faults-"))
        try:
            with _world(kind, directory) as world:
                for cell in mine:
                    rows.append(run_cell(cell, world, options))
                    print(rows[-1].text(), flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return rows


def run_chains(cells: Sequence[ChainCell], options: Options) -> list[Row]:
    """All of them, and print."""
    rows = []
    with ExitStack() as stack:
        needs_server = any(cell.world == "postgresql" for cell in cells)
        server = stack.enter_context(postgres_server()) if needs_server else None
        for cell in cells:
            if server is not None and not server.is_running:
                start_again(server)
            rows.append(run_chain_cell(cell, options, server if cell.world == "postgresql" else None))
            print(rows[-1].text(), flush=True)
    return rows


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cell", action="append", default=[], metavar="WORDS", help="only cells with these words")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    cells = [*PROCESS_CELLS, *DATABASE_CELLS, *POSTGRESQL_CELLS]
    chains = [*QUOTA_CELLS, *CHAIN_CELLS, *STAGE_CELLS, *STAGE_LOAD_CELLS]
    if chosen.cell:
        cells = [cell for cell in cells if any(words in cell.name for words in chosen.cell)]
        chains = [cell for cell in chains if any(words in cell.name for words in chosen.cell)]
    if chosen.list:
        print("\n".join([*(cell.name for cell in cells), *(cell.name for cell in chains)]))
        return 0
    began = time.monotonic()
    print(f"gateway faults: seed {chosen.seed}", flush=True)
    options = Options(random.Random(chosen.seed), chosen.kills)
    rows = [*run(cells, options), *run_chains(chains, options)]
    print("\n| broken | operators saw | sandboxes saw | recovered after | lost or wrong |\n|---|---|---|---|---|")
    print("\n".join(row.line() for row in rows))
    wrong = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows)} cells, {wrong} wrong, {time.monotonic() - began:.0f} s, seed {chosen.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
