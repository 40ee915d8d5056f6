"""Runners' faults (`make runner-faults`): one thing is broken at a time, under load, and every caller hears the truth.

    .venv/bin/python bench/runner_faults.py [--cell WORDS ...] [--list]

Real processes: nats-server, an API process, data workers, runners, each beside a model's server that records what it
is asked, and callers that stream and that don't. After each cell every call must have had an end in its time: whole, a
code, or an error event, never a cut that could be taken for whole. No request may have reached a model twice, or
another model than its own; new requests must be answered without a restart of anything else; all slots must be free,
no descriptor leaked, and no prompt in a log. Exit status 1 when anything was wrong.
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.fault_table import Row, bounded
from bench.gateway_cells import NotHere, fake_clock
from bench.runner_cells import MEMORY_CELLS, PROCESS_CELLS, RunnerCell
from bench.runner_machine_cells import MACHINE_CELLS
from bench.runner_record_cells import RECORD_CELLS
from bench.runner_world import Mark, RunnerWorld
from tests.support.databases import postgres_server

_CALLERS = "callers"
_MOST_TEXTS = 6
_OF_REQUESTS = re.compile(r"pointsman: (request_matched|infer_)")


def run_cell(cell: RunnerCell, world: RunnerWorld) -> Row:
    """Break it, mend it, look."""
    row, began = Row(cell.name, who=_CALLERS), time.monotonic()
    mark = world.mark()
    try:
        with bounded(cell.seconds):
            seen = cell.act(world)
            row.operators += [_shortened(text, world) for text in seen.told]
            row.wrong += seen.wrong
            row.recovered = world.recovered(seen.mended)
            row.wrong += world.complaints(mark, seen)
    except NotHere as error:
        row.skipped = str(error)
    except Exception as error:  # whatever it was, the other cells are run
        row.wrong.append(f"{type(error).__name__}: {error}")
    row.took = time.monotonic() - began
    _fill(row, world, mark)
    return row


def _fill(row: Row, world: RunnerWorld, mark: Mark) -> None:
    news = Counter(
        f"{name.partition('-')[0]}: {_shortened(line, world)}"
        for name, line in world.news(mark)
        if not _OF_REQUESTS.match(line)
    )
    row.operators += [f"{text} (×{count})" for text, count in news.most_common(_MOST_TEXTS)]
    row.clients += world.ends(mark)


def _shortened(text: str, world: RunnerWorld) -> str:
    text = text.replace(str(world.directory), "DIR").replace("pointsman: ", "").strip()
    text = re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
    return re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)


def run(cells: Sequence[RunnerCell]) -> list[Row]:
    """All of them, and print. A world in which something went wrong is not used again."""
    rows: list[Row] = []
    left = list(cells)
    while left:
        kind = left[0].world
        directory = Path(tempfile.mkdtemp(prefix="pointsman-faults-"))
        try:
            with ExitStack() as stack:
                world = _world(kind, directory, stack)
                while left and left[0].world == kind:
                    rows.append(run_cell(left.pop(0), world))
                    print(rows[-1].text(), flush=True)
                    if rows[-1].wrong:
                        break
        except NotHere as error:
            rows.append(Row(left.pop(0).name, skipped=str(error), who=_CALLERS))
            print(rows[-1].text(), flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return rows


def _world(kind: str, directory: Path, stack: ExitStack) -> RunnerWorld:
    """Raises NotHere."""
    if kind == "postgresql":
        return RunnerWorld(directory, stack, server=stack.enter_context(postgres_server()))
    if kind == "memory":
        return RunnerWorld(directory, stack, data=0)
    if kind == "clock":
        clock, environ = fake_clock(directory)
        return RunnerWorld(directory, stack, clock=clock, environ=environ)
    return RunnerWorld(directory, stack)


CELLS = (*PROCESS_CELLS, *MACHINE_CELLS, *RECORD_CELLS, *MEMORY_CELLS)


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cell", action="append", default=[], metavar="WORDS", help="only cells with these words")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    cells = [cell for cell in CELLS if not chosen.cell or any(words in cell.name for words in chosen.cell)]
    if chosen.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    began = time.monotonic()
    rows = run(cells)
    print("\n| broken | operators saw | callers saw | recovered after | wrong |\n|---|---|---|---|---|")
    print("\n".join(row.line() for row in rows))
    wrong = sum(bool(row.wrong) for row in rows)
    print(f"{len(rows)} cells, {time.monotonic() - began:.0f} s, wrong={wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
