"""Sends every row of a corpus through `pointsman sandbox proxy`, and tells where verdicts differ.

Exit status 1: a row got through that is invalid by its source and that no reference forwarded. 2: not a corpus.
The rest of the table deserves a look by hand: rows without Host, CONNECT and policy make false alarms.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.corpus.lane import Result, open_lane
from tests.corpus.rows import AIMED, AS_IT_IS, BadCorpus, Row, aims, read_corpus

_LANES = 4


def run_rows(rows: list[Row], lanes: int, tell: Callable[[int], None]) -> list[Result]:
    """Results in the order of the rows; `tell` hears how many rows are done."""
    done = [0] * lanes

    def run(lane_number: int, directory: Path) -> list[Result]:
        results = []
        with open_lane(directory / str(lane_number)) as lane:
            for row in rows[lane_number::lanes]:
                results += [lane.send(row, aim, data) for aim, data in aims(row).items()]
                done[lane_number] += 1
                tell(sum(done))
            lane.finish()
        return results

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(lanes) as pool:
        found = [result for each in pool.map(run, range(lanes), [Path(name)] * lanes) for result in each]
    return sorted(found, key=lambda result: result.row.number)


def judge(result: Result) -> str:
    """`got through`, `look` where we differ from the source or the references, or nothing."""
    row = result.row
    if row.must_be_refused:
        return "" if result.refused else "got through"
    if row.verdict == "reject" or result.aim == AS_IT_IS:  # no path of a foreign corpus is served
        return "look" if result.upstream else ""
    forwarded = [did for _, did in row.references if did.startswith("fwd")]
    if row.verdict == "any":  # rules that we need not share, but nobody's exception
        return "look" if result.upstream and not forwarded else ""
    if result.aim == AIMED and not row.has_host:
        return ""
    return "look" if forwarded and result.ours not in forwarded else ""


def _table(results: list[tuple[str, Result]]) -> str:
    lines = [("", "row", "sent", "source", "references", "ours", "name")]
    for verdict, result in results:
        row = result.row
        references = " ".join(f"{name}:{did}" for name, did in row.references)
        lines.append((verdict, str(row.number), result.aim, row.verdict, references, result.ours, row.name[:60]))
    widths = [max(len(line[column]) for line in lines) for column in range(7)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(text.rstrip() for text in texts)


def _as_json(results: list[tuple[str, Result]]) -> str:
    return json.dumps(
        [
            {
                "row": result.row.number,
                "name": result.row.name,
                "sent": result.aim,
                "verdict": result.row.verdict,
                "references": dict(result.row.references),
                "must_be_refused": result.row.must_be_refused,
                "ours": result.ours,
                "statuses": result.statuses,
                "upstream": result.upstream,
                "judgement": judgement,
            }
            for judgement, result in results
        ],
        indent=1,
    )


def main() -> int:
    """Run a corpus."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument(
        "file", type=Path, help="JSONL; a row has name, raw (base64), verdict, and may have haproxy, nginx"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="json lists every result")
    parser.add_argument("--lanes", type=int, default=_LANES, help=f"proxies side by side (default: {_LANES})")
    arguments = parser.parse_args()
    try:
        rows = read_corpus(arguments.file)
    except (BadCorpus, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 2
    on_terminal = sys.stderr.isatty()

    def tell(done: int) -> None:
        if on_terminal:
            waiting = "; waiting for deadlines, up to a minute" if done == len(rows) else ""
            print(f"\r\033[Kcorpus: {done} of {len(rows)} rows{waiting}", end="", file=sys.stderr, flush=True)

    results = run_rows(rows, max(1, min(arguments.lanes, len(rows))), tell)
    if on_terminal:
        print("\r\033[K", end="", file=sys.stderr)
    judged = [(judge(result), result) for result in results]
    through = sum(judgement == "got through" for judgement, _ in judged)
    if arguments.output == "json":
        print(_as_json(judged))
    else:
        notable = sorted((each for each in judged if each[0]), key=lambda each: each[0])
        if notable:
            print(_table(notable))
        must = sum(row.must_be_refused for row in rows)
        print(f"corpus: {len(rows)} rows, {len(results)} sent, {must} must be refused: {through} got through", end="")
        print(f"; {len(notable) - through} to look at")
    return 1 if through else 0


if __name__ == "__main__":
    sys.exit(main())
