"""Cells about what the stages write: databases that are away, gateways that are killed, the audit record's head."""

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.chain_world import CALLERS, ChainWorld
from bench.gateway_cells import ChainCell, NotHere, Options, start_again
from bench.gateway_world import Seen
from bench.stage_world import BLOCKED, SERVED, UNCOUNTED, StageWorld

_BROKEN_SECONDS = 4.0
_KILLS = 8
_HEAD = "audit.head"
_WRITTEN = ("usage", "receipts", "audit")
_NEWS = tuple(f"pointsman: {what}: " for what in _WRITTEN)
_PATIENCE_SECONDS = 5.0
"""For which a write waits for another's transaction (`store.settings.StoreSettings.busy_seconds`)."""
_TOLD = tuple(f"pointsman: {what}" for what in ("usage: ", "receipts: ", "audit: ", "budgets are ", "budgets cannot "))


def stages(world: ChainWorld) -> StageWorld:
    """Of a cell's world."""
    assert isinstance(world, StageWorld)
    return world


def told(world: StageWorld, seen: Seen, since: float, *, uncounted: bool = False) -> None:
    """How requests ended since something was broken; those beyond a counter that is away end in 503."""
    for end, count in world.seen(since).items():
        seen.sandboxes.append(f"{end} (×{count})")
        if end not in (*SERVED, BLOCKED, *((UNCOUNTED,) if uncounted else ())):
            seen.wrong.append(f"a request failed (×{count}): {end}")
    seen.sandboxes.append(f"the slowest took {world.slowest(since):.1f} s")


def heard(world: StageWorld, seen: Seen, *kinds: str) -> None:
    """What operators read; of each of these kinds there must be something."""
    lines = [line for line in world.said() if line.startswith(_TOLD)]
    seen.operators += lines
    for kind in kinds:
        if not any(line.startswith(f"pointsman: {kind}") for line in lines):
            seen.wrong.append(f"operators are told nothing of {kind}")


@contextlib.contextmanager
def _held(paths: Sequence[Path]) -> Iterator[None]:
    """Each by another process's transaction."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            other = stack.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None)))
            other.execute("PRAGMA busy_timeout = 5000")
            other.execute("BEGIN EXCLUSIVE")
            stack.callback(other.execute, "ROLLBACK")
        yield


def _locked(names: Sequence[str], seconds: float, world: ChainWorld, options: Options) -> Seen:
    at, seen = stages(world), Seen(0.0)
    with at.under_load():
        with _held([at.gateway.directory / name for name in names]):
            broken = time.monotonic()
            time.sleep(seconds)
            told(at, seen, broken, uncounted="quota.db" in names)
        seen.mended = time.monotonic()
        at.recovered(seen.mended)
        seen.wrong += at.complaints()
    is_away = "pointsman.db" in names and seconds > _PATIENCE_SECONDS
    heard(at, seen, *(_WRITTEN if is_away else ()), *(("budgets",) if "quota.db" in names else ()))
    if not is_away:  # a write that waits, and is made, is no news
        seen.wrong += [f"told of nothing: {each}" for each in seen.operators if each.startswith(_NEWS)]
    return seen


def _disk_full(world: ChainWorld, options: Options) -> Seen:
    """Until hard budgets cannot be counted; then room is made."""
    at, seen = stages(world), Seen(0.0)
    directory = at.gateway.directory
    at.prepare()
    if not os.path.ismount(directory):
        raise NotHere("only root can mount a small disk")
    with at.under_load():
        broken = time.monotonic()
        with (directory / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        at.until(lambda: at.seen(time.monotonic() - 1.0)[UNCOUNTED] > 0, "the counters never met the full disk")
        time.sleep(_BROKEN_SECONDS)
        told(at, seen, broken, uncounted=True)
        seen.mended = time.monotonic()
        (directory / "ballast").unlink()
        at.recovered(seen.mended)
        seen.wrong += at.complaints()
    heard(at, seen, "budgets", "usage", "receipts")
    return seen


def _postgresql(how: str, world: ChainWorld, options: Options) -> Seen:
    """Stopped or killed for some seconds, or started again at once: hard budgets are away with it."""
    at, seen = stages(world), Seen(0.0)
    assert at.server is not None
    with at.under_load():
        broken = time.monotonic()
        at.server.stop(signal.SIGKILL if how == "killed" else signal.SIGINT)
        time.sleep(0.0 if how == "restarted" else _BROKEN_SECONDS)
        start_again(at.server)
        seen.mended = time.monotonic()
        at.recovered(seen.mended)
        told(at, seen, broken, uncounted=True)
        # Whether what was asked of the server as it went was counted nobody can tell.
        seen.wrong += at.complaints(over=2 * CALLERS)
    heard(at, seen, "budgets")
    return seen


def postgresql_killed_again_and_again(world: ChainWorld, options: Options) -> Seen:
    """While rows, receipts and decisions are written: some commits end with nobody to tell of it."""
    at, seen, kills = stages(world), Seen(0.0), min(_KILLS, options.kills)
    assert at.server is not None
    with at.under_load():
        began = time.monotonic()
        for _ in range(kills):
            time.sleep(options.rng.uniform(0.4, 1.2))
            at.server.stop(signal.SIGKILL)
            start_again(at.server)
            seen.mended = time.monotonic()
            at.recovered(seen.mended)
        told(at, seen, began, uncounted=True)
        seen.wrong += at.complaints(over=2 * CALLERS * kills)
    heard(at, seen)
    return seen


def killed(world: ChainWorld, options: Options) -> Seen:
    """The last gateway, again and again while it writes: both chains go on, and what is lost is told."""
    at, seen, kills = stages(world), Seen(0.0), min(_KILLS, options.kills)
    gateway = at.gateways[-1]
    with at.under_load():
        for _ in range(kills):
            time.sleep(options.rng.uniform(0.3, 1.1))
            gateway.end(signal.SIGKILL)
            seen.mended = time.monotonic()
            gateway.start()
        at.recovered(seen.mended)
        seen.wrong += at.complaints(killed=kills)
    made, ids = at.written(), {each.request_id for each in at.told}
    lost = len(ids - made.receipts.keys())
    seen.operators.append(f"{kills} kills: {len(ids)} requests were answered, {lost} have no receipt")
    said = [line for line in gateway.lines if "usage: rows lost" in line]
    seen.operators += [line.strip() for line in said[:2]]
    if lost and not said:
        seen.wrong.append("operators are told of no lost row")
    return seen


def two_gateways(world: ChainWorld, options: Options) -> Seen:
    """Both write receipts, rows and decisions at once, and an operator changes records at both."""
    at, seen = stages(world), Seen(0.0)
    with at.under_load():
        began = time.monotonic()
        for number in range(10):
            at.price(str(3 + number))
            time.sleep(0.2)
        told(at, seen, began)
        seen.mended = time.monotonic()
        at.recovered(seen.mended)
        seen.wrong += at.complaints()
    heard(at, seen)
    seen.operators.append(f"{len(at.told)} requests, each with one receipt, in one chain")
    return seen


def audit_head_file(world: ChainWorld, options: Options) -> Seen:
    """Removed, unwritable and mended while it runs; garbage and of a later record at a start."""
    at, seen = stages(world), Seen(0.0)
    at.prepare()
    gateway = at.gateway
    head = gateway.directory / _HEAD

    def change(expected: str) -> None:
        since = len(gateway.lines)
        at.price(str(options.rng.randrange(1, 1000)))
        time.sleep(0.2)  # what it says is read in another thread
        lines = [line.strip() for line in gateway.lines[since:] if "audit: " in line]
        seen.operators += lines
        if bool(expected) != bool(lines) or not all(expected in line for line in lines):
            seen.wrong.append(f"said {lines}, not {expected!r}")

    head.unlink()
    change("")
    if not head.exists():
        seen.wrong.append("a head that was removed is not noted again")
    draft = head.with_name(f".{_HEAD}.{gateway.pid}")
    draft.mkdir()  # nobody can write there, not even root
    change("cannot be written")
    draft.rmdir()
    change("written again")
    database = gateway.directory / "pointsman.db"
    kept = gateway.directory / "backup.db"
    with contextlib.closing(sqlite3.connect(database)) as old, contextlib.closing(sqlite3.connect(kept)) as new:
        old.backup(new)
    change("")
    gateway.end()
    for path in gateway.directory.glob("pointsman.db*"):
        path.unlink()
    shutil.move(kept, database)
    seen.operators.append(_start_said(at, "does not hold entry", seen))
    change("")
    gateway.end()
    head.write_bytes(b"no head\n")
    seen.operators.append(_start_said(at, "cannot be read", seen))
    gateway.end()
    head.unlink()
    seen.mended = time.monotonic()
    seen.operators.append(_start_said(at, "", seen))
    seen.wrong += at.complaints()
    return seen


def _start_said(at: StageWorld, expected: str, seen: Seen) -> str:
    """What is said of the audit record at a start."""
    since = len(at.gateway.lines)
    at.gateway.start()
    line = next((line.strip() for line in at.gateway.lines[since:] if "audit: " in line), "")
    if expected not in line or bool(expected) != bool(line):
        seen.wrong.append(f"the start says {line!r}, not {expected!r}")
    return f"at the start: {line or 'nothing'}"


_cell = partial(ChainCell, limit=0, make=StageWorld)
STAGE_CELLS = (
    _cell("stages: database locked for 10 s", "sqlite", partial(_locked, ["pointsman.db"], 10.0)),
    _cell("stages: counters locked for 10 s", "sqlite", partial(_locked, ["quota.db"], 10.0)),
    _cell(
        "stages: database and counters locked for 3 s", "sqlite", partial(_locked, ["pointsman.db", "quota.db"], 3.0)
    ),
    _cell("stages: disk full, then room made", "sqlite", _disk_full),
    _cell("stages: gateway SIGKILLed while it writes", "sqlite", killed),
    _cell("stages: one of two gateways SIGKILLed while both write", "sqlite", killed, gateways=2),
    _cell("stages: two gateways write at once", "sqlite", two_gateways, gateways=2),
    _cell("stages: audit.head removed, unwritable, garbage; a restored database", "sqlite", audit_head_file),
    _cell("stages: PostgreSQL stopped for 4 s", "postgresql", partial(_postgresql, "stopped")),
    _cell("stages: PostgreSQL SIGKILLed, back after 4 s", "postgresql", partial(_postgresql, "killed")),
    _cell("stages: PostgreSQL restarted", "postgresql", partial(_postgresql, "restarted")),
    _cell("stages: PostgreSQL SIGKILLed again and again", "postgresql", postgresql_killed_again_and_again, seconds=200),
    _cell("stages: two gateways write at once to PostgreSQL", "postgresql", two_gateways, gateways=2),
    _cell("stages: one of two gateways SIGKILLed, PostgreSQL writes", "postgresql", killed, gateways=2),
)
